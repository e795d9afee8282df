"""Parity with the public code of Collapsing Bandits (Mate et al. 2020), which is not included here.

Patients have two states, which are seen only on a call: `Unseen` with `seen="acted"`. The study
compares Threshold Whittle, from that code, with our index of the chain: on patients that the code
simulates, in its simulator and with its seeds. In small cases it also computes the best policy. Run
it with the folder of the repository (github.com/AdityaMate/collapsing_bandits):

    python -m studies.collapsing FOLDER
"""

import contextlib
import importlib
import io
import itertools
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import prefermab as pm
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.common.pages import table_as_markdown

PATIENTS, CALLS, DAYS, TRIALS = 50, 5, 180, 30
"""The example in the README of that repository, with more trials."""
SHOWN, DISTINCT_DAYS, DISCOUNT = 12, 60, 1 - 1e-6
"""Days since a call for which indices are compared; days that our chain distinguishes; and the
discount of the comparison, near 1 because their index is for the mean reward. Simulations with an
end use the discount 1 - 1/days."""
SMALL, HORIZON = ((2, 1), (3, 1), (3, 2)), 10
"""Patients and calls of cases small enough to compute the best policy, and number of days."""
NOT_NEEDED = ("mdptoolbox", "numba", "matplotlib", "matplotlib.pyplot", "matplotlib.lines", "tqdm")


def load(folder: str) -> Any:
    """Their simulator as a module. Packages that it needs only for figures and other policies are
    replaced by mocks. It creates folders when it is imported, so it is imported in a temporary
    folder."""
    sys.path.insert(0, str(Path(folder, "code").resolve()))
    sys.modules |= {name: mock.MagicMock() for name in NOT_NEEDED}
    sys.modules["tqdm"] = replacement = ModuleType("tqdm")
    replacement.__dict__["tqdm"] = iter
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        try:
            return importlib.import_module("adherence_simulation")
        finally:
            os.chdir(start)


def tables(patients: np.ndarray, rounds: int) -> tuple[pm.domains.Unseen, np.ndarray, np.ndarray]:
    """The chain of what is known about patients (patient, action, state, next state): the domain,
    transitions and rewards, in double precision."""
    with jax.enable_x64(True):
        domain = pm.domains.Unseen(pm.domains.Synthetic(), rounds=rounds)
        # Synthetic arms are probabilities of state 0, for each state without and with action.
        arms = jnp.asarray(np.moveaxis(patients[..., 0], 1, 2).reshape(-1, 4))
        transitions, rewards = jax.vmap(domain.transitions)(arms), jax.vmap(domain.rewards)(arms)
        return domain, np.asarray(transitions), np.asarray(rewards)


def places(domain: pm.domains.Unseen, days: int) -> np.ndarray:
    """The chain's states for patients who were called: (state seen, days since the call)."""
    state, since = np.indices((2, days))
    ones = np.ones(2 * days, int)
    return domain.sightings.place(state.ravel(), 1 + since.ravel(), ones).reshape(2, days)


def our_indices(patients: np.ndarray, days: int, discount: float) -> np.ndarray:
    """Our indices of the chain: (patient, state last seen, days since)."""
    domain, transitions, rewards = tables(patients, DISTINCT_DAYS)
    # After a call, the chain only reaches states with another number of days since a call.
    here = places(domain, DISTINCT_DAYS).ravel()
    known = transitions[:, here][..., here], rewards[:, here]
    own = pm.oracles.whittle_indices(*known, discount=discount).reshape(-1, 2, DISTINCT_DAYS)
    return np.pad(own, ((0, 0), (0, 0), (0, days - DISTINCT_DAYS)), mode="edge")


def their_indices(code: Any, patients: np.ndarray) -> np.ndarray:
    """The indices of their Threshold Whittle, in the same order."""
    return np.array([code.whittleIndex(one, L=DAYS)[::-1] for one in patients])


def drawn(code: Any, kind: str, seed: int, size: int) -> np.ndarray:
    """Patients that their code draws for a seed."""
    np.random.seed(seed)  # noqa: NPY002
    if kind == "simulated":
        return code.generateTmatrixBadf(size, responsive_patient_fraction=0.6)
    if kind == "full_random":
        return code.generateTmatrixFullRandom(size, badf=0.4)
    return code.generateTmatrixNIBandIB(size, thresh_opt_frac=0.0, beta=0.5, quick_check=True)


def days_adherent(code: Any, patients: np.ndarray, policy: int, seed: int, indices=None) -> float:
    """Mean days in the good state in their simulator; policy 0 calls nobody, 5 uses indices."""
    own = code.whittleIndex
    if indices is not None:
        each = iter(indices)
        code.whittleIndex = lambda *_, **__: next(each)[::-1]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            adherent = code.simulateAdherence(
                len(patients), DAYS, patients, CALLS, policy, online=False, world_random_seed=seed
            )
    finally:
        code.whittleIndex = own
    return adherent.sum(axis=1).mean()


def compare(code: Any, kind: str) -> tuple[list[list[str]], list[str]]:
    """Rows about the indices of one kind of patients, and one about what they earn."""
    gaps, holds, rises, earned = [], [], [], []
    for seed in range(TRIALS):
        patients = drawn(code, kind, seed, PATIENTS)
        theirs, ours = their_indices(code, patients), our_indices(patients, DAYS, DISCOUNT)
        gaps.append(np.abs(theirs - ours)[..., :SHOWN].max(axis=(1, 2)))
        holds.append([bool(code.isThresholdOptimal(one, 0.5)) for one in patients])
        rises.append((np.diff(theirs[..., : SHOWN + 1]) >= -1e-9).all(axis=(1, 2)))
        plays = ((0, None), (5, None), (5, our_indices(patients, DAYS, 1 - 1 / DAYS)))
        earned.append([days_adherent(code, patients, p, seed, own) for p, own in plays])
    gap, condition, rising = np.concatenate(gaps), np.concatenate(holds), np.concatenate(rises)
    rows = [
        [kind, what, str(chosen.sum()), f"{np.mean(gap[chosen] < 1e-4) if chosen.any() else 0:.1%}",
         f"{gap[chosen].max(initial=0):.1e}"]
        for what, chosen in (
            ("threshold condition holds", condition), ("index rises with the days since", rising),
            ("neither", ~condition & ~rising),
        )
    ]  # fmt: skip
    none, theirs, ours = np.array(earned).T
    error = (ours - theirs).std(ddof=1) / np.sqrt(TRIALS)
    means = [f"{mean:.2f}" for mean in (none.mean(), theirs.mean(), ours.mean())]
    return rows, [kind, *means, f"{(ours - theirs).mean():+.2f} ± {error:.2f}"]


def optimum(transitions: np.ndarray, rewards: np.ndarray, start: int, calls: int, days: int) -> Any:
    """What the best policy earns of a few arms, by going through all that may be known of all of
    them together; and a function that says what a policy by indices (arm, place) earns."""
    n_arms, n_places, _, _ = transitions.shape
    choices = [np.isin(np.arange(n_arms), who).astype(int)
               for who in itertools.combinations(range(n_arms), calls)]  # fmt: skip
    each = np.indices((n_places,) * n_arms)
    reward = sum(rewards[arm][each[arm]] for arm in range(n_arms))

    def worths(value: np.ndarray) -> np.ndarray:
        found = []
        for actions in choices:
            ahead = reward + value
            for arm, action in enumerate(actions):
                along = np.tensordot(transitions[arm][:, action], ahead, axes=(1, arm))
                ahead = np.moveaxis(along, 0, arm)
            found.append(ahead)
        return np.stack(found)

    def by_indices(indices: np.ndarray | None) -> float:
        chosen = None
        if indices is not None:
            own = np.stack([indices[arm][each[arm]] for arm in range(n_arms)])
            chosen = np.argmax([np.tensordot(a, own, axes=1) for a in choices], axis=0)[None]
        value = np.zeros((n_places,) * n_arms)
        for _ in range(days):
            ahead = worths(value)
            value = ahead.max(axis=0) if chosen is None else np.take_along_axis(ahead, chosen, 0)[0]
        return float(value[(start,) * n_arms])

    return by_indices(None), by_indices


def small_case(code: Any, kind: str, seed: int, n_arms: int, calls: int) -> list[float]:
    """Rewards for patients who start adherent and seen: of the best policy, of our index and of
    theirs; and our bound."""
    patients = drawn(code, kind, seed, n_arms)
    domain, transitions, rewards = tables(patients, HORIZON)
    best, by_indices = optimum(transitions, rewards, 1, calls, HORIZON)
    ours = pm.oracles.whittle_indices(transitions, rewards, discount=1 - 1 / HORIZON)
    tree = domain.sightings
    known = np.minimum(tree.roots, 1), np.maximum(tree.rounds_since - 1, 0)
    theirs = their_indices(code, patients)[:, *known]
    bound = pm.oracles.lagrangian_bound(
        transitions, rewards, [0, 1], calls, np.ones(n_arms, int), HORIZON
    )
    return [best, by_indices(ours), by_indices(theirs), bound.value]


def page(code: Any) -> str:
    """Runs the comparisons and returns the page."""
    kinds = ("simulated", "full_random", "reverse threshold")
    about, earned, small = [], [], []
    for kind in kinds:
        rows, row = compare(code, kind)
        about, earned = [*about, *rows], [*earned, row]
        print(*rows, row, sep="\n", flush=True)
    for (n_arms, calls), kind in itertools.product(SMALL, kinds):
        cases = np.array([small_case(code, kind, seed, n_arms, calls) for seed in range(TRIALS)])
        best, ours, theirs, bound = cases.T
        small.append(
            [f"{n_arms}, {calls}", kind, f"{(best / bound).max():.4f}",
             f"{(ours / best).mean():.2%}", f"{(theirs / best).mean():.2%}",
             f"{(ours / best).min():.2%}", f"{(theirs / best).min():.2%}"]
        )  # fmt: skip
        print(*small[-1], flush=True)
    return (
        "# Parity with the public code of Collapsing Bandits\n\n"
        "Patients with two states who are seen only when they are called, drawn by that code "
        f"({TRIALS} seeds, {PATIENTS} patients each): its `simulated` and `full_random` ones, and "
        "those of its `uniform` data for whom reverse threshold policies are best. Its Threshold "
        f"Whittle is for the mean reward; our index of the chain has discount 1 - 1e-6 and "
        f"{DISTINCT_DAYS} days that are told apart. Compared are both chains' first {SHOWN} "
        "days.\n\n"
        + table_as_markdown(["patients", "", "number", "equal to 1e-4", "furthest apart"], about)
        + "\n\nThe condition is its own `isThresholdOptimal` at its discount of 0.5. Its index "
        "assumes that nobody is worth less after waiting longer; where it does not rise, "
        "it is none.\n\n"
        f"Mean days of {DAYS} in the good state, {CALLS} calls a day, in its simulator with its "
        "seeds, once by its indices and once by ours with discount 1 - 1/days (compared with "
        "others on seeds from 100 on):\n\n"
        + table_as_markdown(
            ["patients", "nobody called", "its index", "ours", "difference"], earned
        )
        + f"\n\nSmall cases of {HORIZON} days, {TRIALS} each, everything worked out exactly. Its "
        "own optimum needs a solver that is not in its repository; here it is backward induction "
        "over all that may be known of all patients together. The bound is "
        "`pm.oracles.lagrangian_bound` on the chain; our index has discount 1 - 1/days, its "
        "index is that of the mean reward. That discount was chosen on 20 of these very cases, so "
        "the share of our index is a little too good here.\n\n"
        + table_as_markdown(
            [
                "patients, calls",
                "",
                "best policy / bound, highest",
                "our index / best",
                "its index",
                "our index, worst case",
                "its index, worst case",
            ],
            small,
        )
        + f"\n\nWritten by `python -m studies.collapsing FOLDER`, prefermab {pm.__version__}, "
        f"JAX {jax.__version__} on {jax.default_backend()}.\n"
    )


if __name__ == "__main__":
    use_compilation_cache()
    if len(sys.argv) != 2 or not Path(sys.argv[1], "code", "adherence_simulation.py").is_file():
        sys.exit("Give the folder of the repository collapsing_bandits: it has code/whittle.py.")
    text = page(load(sys.argv[1]))
    write_atomically(Path("docs/results/collapsing.md"), lambda draft: draft.write_text(text))
