import io
import json

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import prefermab as pm
from prefermab import cli
from prefermab.cli.simulate import SimulateCommand, simulation_table, text_chart
from prefermab.common import plots
from prefermab.evaluation.simulation import Tally

TURNS = {"turns": pm.policies.RoundRobin()}


@pytest.fixture(scope="module")
def turns():
    """Six people, two calls a round, nobody leaves."""
    seen, shares = [], []
    frame = pm.simulate(
        domain=pm.domains.Armman(), policies=TURNS, n_arms=6, budget=2, rounds=4, opt_in=1.0,
        seed=3, trials=2, watch=lambda tally: seen.append(tally.trials),
        progress=lambda share, text: shares.append((share, text)),
    )  # fmt: skip
    return frame, seen, shares


def test_people_reached_are_counted_once(turns):
    frame, *_ = turns
    assert frame["round"].to_list() == [1, 2, 3, 4]
    assert frame["reached"].to_list() == [2, 4, 6, 6]
    assert frame["reached_share"].to_list() == pytest.approx([1 / 3, 2 / 3, 1, 1])
    assert frame["spent"].to_list() == [2, 2, 2, 2]
    assert frame["opted_in"].to_list() == frame["joined"].to_list() == [6, 6, 6, 6]


def test_it_is_what_evaluate_plays(turns):
    frame, *_ = turns
    means = [
        pm.evaluate(
            pm.domains.Armman(), TURNS, n_arms=6, budget=2, trials=1, seed=3, rounds=4, bound=False
        )["mean"][0]
    ]
    watched = []
    pm.simulate(
        domain=pm.domains.Armman(), policies=TURNS, n_arms=6, budget=2, rounds=4, opt_in=1.0,
        seed=3, trials=1, watch=watched.append,
    )  # fmt: skip
    assert watched[0].found["turns"]["engagement"].sum() == pytest.approx(means[0], rel=1e-5)
    assert frame["engagement"].sum() != pytest.approx(means[0], rel=1e-5)


def test_somebody_may_watch_piece_by_piece(turns):
    assert turns[1] == [1, 2]
    assert turns[2] == [(0.5, "1 of 2 programmes"), (1.0, "2 of 2 programmes")]


def tally(**engagement) -> Tally:
    def measured(values):
        rows = np.array(values, float)
        ones = np.ones_like(rows)
        return {
            "engagement": rows,
            "opted_in": 4 * ones,
            "joined": 8 * ones,
            "spent": ones,
            "reached": 2 * ones,
            "reached_share": ones / 4,
        }

    return Tally(9, {name: measured(values) for name, values in engagement.items()})


def test_means_standard_errors_and_paired_differences():
    two = tally(a=[[1, 3], [2, 3], [3, 3]], b=[[0, 3], [0, 3], [1, 0]])
    frame = two.frame()
    assert two.best == "a"
    assert frame.columns[:2] == ["round", "policy"]
    assert frame["policy"].to_list() == ["a", "b", "a", "b"]
    first = frame.row(0, named=True)
    assert first["engagement"] == 2
    assert first["engagement_stderr"] == pytest.approx(1 / 3**0.5)  # sd of 1, 2, 3 is 1
    other = frame.row(1, named=True)  # differences -1, -2, -2: mean -5/3, sd 1/√3
    assert other["difference"] == pytest.approx(-5 / 3)
    assert other["difference_stderr"] == pytest.approx(1 / 3)
    whole = two.summary()
    assert whole["policy"].to_list() == ["a", "b"]
    assert whole["engagement"].to_list() == pytest.approx([2.5, 7 / 6])
    assert whole["reached_share"].to_list() == [0.25, 0.25]


def test_a_round_in_which_nobody_is_in_does_not_count():
    nobody = float("nan")
    frame = tally(a=[[1, nobody, nobody], [3, 4, nobody]]).frame()
    assert frame["engagement"].to_list() == [2, 4, None]
    assert frame["engagement_stderr"].to_list() == [1, 0, None]


def test_trials_that_only_fill_a_batch_up_are_left_out():
    one, more = tally(a=[[1, 1]] * 6), tally(a=[[2, 2]] * 6)
    both = one.with_trials(more.found)
    assert both.trials == both.wanted == 9
    assert both.found["a"]["engagement"][:, 0].tolist() == [1] * 6 + [2] * 3


def test_the_table_has_best_first_and_fits_a_terminal():
    out = io.StringIO()
    Console(width=80, file=out).print(
        simulation_table(tally(none=[[0.1, 0.1]], prefermab=[[0.5, 0.9]]), "armman", width=80)
    )
    lines = out.getvalue().splitlines()
    assert lines[1] == "1 of 9 programmes".ljust(len(lines[1]))
    assert [line.split()[0] for line in lines[2:]] == ["policy", "prefermab", "none"]
    assert "0.700 ± 0.000" in lines[3]
    assert "25.0%" in lines[3]
    assert "▅█" in lines[3]
    assert "▁▁" in lines[4]


def test_bars_leave_a_gap_where_there_is_nothing():
    assert text_chart(np.array([1.0, np.nan, 2.0]), 1.0, 2.0) == "▁ █"
    assert text_chart(np.array([1.0, 1.0]), 1.0, 1.0) == "▁▁"


def test_a_lottery_spends_the_budget_on_those_who_are_in():
    import jax
    import jax.numpy as jnp

    seen = pm.Observation(
        state=jnp.zeros(6, int), features=jnp.zeros((6, 1)), budget=jnp.array(2.0),
        opt_in=jnp.array([True, False, True, False, True, False]),
        costs=jnp.tile(jnp.array([0.0, 1.0]), (6, 1)), round=jnp.array(0),
    )  # fmt: skip
    keys, policy = jax.random.split(jax.random.key(0), 20), pm.policies.Lottery()
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: policy.act(seen, None, key)[0]))(keys))
    assert (drawn.sum(axis=1) == 2).all()
    assert (drawn[:, 1::2] == 0).all()
    assert (drawn[:, ::2].sum(axis=0) > 5).all()


def test_the_picture_has_a_panel_for_each_question():
    figure = plots.programme(tally(a=[[1, 3], [2, 3]], none=[[0, 0], [1, 0]]).frame(), "t", 7)
    titles = [panel.get_title(loc="left").split()[0] for panel in figure.axes]
    assert titles == ["Engagement:", "People", "Spent", "Acted"]
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["a", "none"]
    assert np.asarray(lines[0].get_ydata()).tolist() == [1.5, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "domain must be a Domain"),
        ({"policies": {}}, "nothing to simulate"),
        ({"rounds": 0}, "rounds must be"),
        ({"trials": 0}, "trials must be"),
        ({"budget": -1}, "budget must be"),
        ({"n_arms": 0}, "n_arms must be"),
        ({"policies": {"me": 3}}, "the policy 'me' must be"),
        ({"opt_in": 2.0}, "opt_in must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence(given, message):
    given = given and {"domain": pm.domains.Armman(), **given}
    with pytest.raises(pm.InputError, match=message):
        pm.simulate(**given)


def test_the_command_prints_json_and_draws(tmp_path, capsys):
    picture = tmp_path / "p.svg"
    options = "--n-arms 5 --budget 2 --rounds 6 --trials 3 --stay 0.8 --newcomers 1 --against none"
    cli.run_command(["simulate", "synthetic", *options.split(), "--json", "--plot", str(picture)])
    told = json.loads(capsys.readouterr().out)
    assert (told["n_arms"], told["budget"], told["stay"]) == (5, 2, 0.8)
    model, none = pl.DataFrame(told["rows"]).partition_by("policy")
    assert model["round"].to_list() == [1, 2, 3, 4, 5, 6]
    assert model["opted_in"][0] == model["joined"][0] == 5
    assert max(model["opted_in"]) <= 5 < model["joined"][-1]
    assert model["opted_in"].to_list() == none["opted_in"].to_list()
    assert 2 <= model["reached"][0] <= model["reached"][-1] <= model["joined"][-1]
    assert none["reached"].to_list() == none["spent"].to_list() == [0] * 6
    assert [row["policy"] for row in told["policies"]] == ["prefermab", "none"]
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("armman --against witle", "did you mean 'whittle'?"),
        ("armman --stay 1.5", "stay must lie between 0 and 1"),
        ("arman", "did you mean 'armman'?"),
        ("armman --plot p.txt", "must end in .png"),
    ],
)
def test_bad_options_are_one_sentence(arguments, message):
    import tyro

    with pytest.raises(pm.InputError) as error:
        tyro.cli(SimulateCommand, args=arguments.split()).run()
    assert message in str(error.value)
