from benchmarks.scaling import POINTS, Point, Scaling, scaling_tables


def test_the_curves_reach_the_longest_promised_responses_on_four_layers() -> None:
    longest = POINTS["response tokens"][-1]
    assert (longest.max_new, longest.size.layers, longest.eos_hazard) == (4096, 4, 0.0)


def test_a_curve_shows_cost_and_work_per_token() -> None:
    points = [Point("prompts", 4, seconds=0.5, tokens=1000, flops=2_000_000_000)]
    prompts, _, _ = scaling_tables(Scaling(points))
    assert prompts.rows == [("4", "0.500", "500", "2.00", "4.0")]
