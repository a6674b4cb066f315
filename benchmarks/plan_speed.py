"""How long ``specsim.plan`` takes for eight drafters-and-K, four degrees and six loads.

    python benchmarks/plan_speed.py

Two drafters with four draft lengths each, and the schedule by batch of each, at tensor parallel
degrees 1, 2, 4 and 8 and at six rates: at most 10 seconds are wanted of the analytic mode.  Beside
it stands what the simulation of the finalists adds, its machine code made before.
"""

from __future__ import annotations

import time

import specsim


def main() -> None:
    deployment = specsim.deploy(
        "llama-3.1-8b",
        "H100",
        ["eagle3:alpha=0.75", "draft_model:llama-3.2-1b,alpha=0.8"],
        overhead_us=1500,
        efficiency=[0.6, 0.7],
    )
    workload = specsim.workload(
        rate=40, prompt="lognormal:1155,0.9,8000", output="lognormal:211,0.8,2000"
    )

    def seconds(*, simulated: bool) -> str:
        begin = time.perf_counter(), time.process_time()
        found = specsim.plan(
            workload,
            slo="ttft_p99=1,tpot_p99=0.03",
            deployment=deployment,
            gammas=(1, 2, 3, 5),
            degrees=(1, 2, 4, 8),
            simulated=simulated,
        )
        took = time.perf_counter() - begin[0], time.process_time() - begin[1]
        if not simulated:
            print(f"{len(found.answers)} set-ups, {len(found.by_rate)} rates")
        return f"{took[0]:.1f} s, of a processor {took[1]:.1f} s"

    print(f"analytic {seconds(simulated=False)}")
    seconds(simulated=True)  # compiles the loop where that was not done yet
    print(f"with simulation {seconds(simulated=True)}")


if __name__ == "__main__":
    main()
