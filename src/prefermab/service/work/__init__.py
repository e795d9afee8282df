"""What pages and API both do: lists, marks, late marks, uploads, jobs, the demo."""
