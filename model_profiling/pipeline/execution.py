"""Runs one group of experiments, launch after launch, and leaves each one's files in a scratch directory.

Every step is noted as it is made (progress.py); a group that was interrupted goes on with the steps that are missing.
"""

import contextlib
import functools
import time
from collections.abc import Callable

from model_profiling.base.errors import KitError
from model_profiling.base.on_progress import OnProgress
from model_profiling.pipeline import progress_log
from model_profiling.pipeline.config import MODES
from model_profiling.pipeline.foreign_runner import LaunchedSession
from model_profiling.pipeline.group_state import GroupState
from model_profiling.pipeline.manifest_records import shared_fields
from model_profiling.pipeline.phase_experiments import token_plan, usual_method
from model_profiling.pipeline.schedule import Lane, LaneKind, Round, plan
from model_profiling.platforms.base import LaunchRequest, Platform, Session
from model_profiling.runner.protocol import Done
from model_profiling.store.artifacts import KERNEL_TRACE
from model_profiling.store.run_directory import Process, Turn

# A model slower than this fills the caches by itself: an uncounted run before each turn would only cost time.
_SETTLE_BELOW_NS = 50_000_000


class GroupRun:
    """Launches the group's lanes round by round, lets those that are timed take turns, and ends them all.

    A round is one launch of every lane in it. The first round shows what launches and executions cost; `plan` then says
    how many rounds there are in all, and why.
    """

    def __init__(
        self,
        platform: Platform,
        state: GroupState,
        report: OnProgress,
        timeout_s: float,
        budget_s: float | None = None,
    ) -> None:
        self._platform = platform
        self._report = report
        self._timeout_s = timeout_s
        self._budget_s = budget_s
        self._sessions: dict[str, Session] = {}
        # When each of them was started, since all began.
        self._began: dict[str, float] = {}
        self._total = 1
        self._planned = False
        self.state = state

    def run(self, rest: progress_log.RemainingRounds | None = None) -> None:
        """Take all rounds, or those that are left. A lane that fails takes its experiment with it, and no other."""
        state = self.state
        rest = rest or state.restore()
        try:
            self._total = state.first.runs
            if rest.first is not None:
                self._take(rest.first, rest.shift)
            if not state.plan:
                lanes, reason = plan(state.lanes, state.cost(), self._budget_s)
                state.note(progress_log.PlanRecord([(lane.runs, lane.launches) for lane in lanes], reason))
                rest = progress_log.RemainingRounds(None, state.later, rest.shift)
            self._planned, state.launches = True, 1 + len(state.later) + rest.shift
            self._total = state.first.runs + sum(each.runs for each in state.later)
            for each in rest.later:
                self._take(each, rest.shift)
        finally:
            with contextlib.ExitStack() as stack:
                for session in self._sessions.values():
                    stack.callback(session.close)

    def _take(self, each: Round, shift: int) -> None:
        """Run one round: timed lanes side by side, then the others one by one, each straight from its warm-up.

        After an interruption there are `shift` more launches than rounds.
        """
        launch = each.launch + shift
        for index in each.together:
            self._guarded(index, functools.partial(self._open, launch=launch))
        if self.state.settle_runs is None:
            self.state.note(progress_log.SettleRecord(self._choose_settle_runs()))
        for step, turn in enumerate(each.turns, each.taken):
            self._new_turn(turn)
            for share in turn:
                self._execute(share, each.launch, step, launch)
        for index in each.together:
            self._guarded(index, functools.partial(self._finish, number=each.launch, launch=launch))
        if each.alone:
            self._new_turn(each.alone)
        for share in each.alone:
            self._guarded(share[0], functools.partial(self._open, launch=launch))
            self._execute(share, each.launch, progress_log.ALONE, launch)
            self._guarded(share[0], functools.partial(self._finish, number=each.launch, launch=launch))

    def _new_turn(self, shares: tuple[tuple[int, int], ...]) -> None:
        self.state.order.append([self.state.lanes[index].label for index, _ in shares])

    def _execute(self, share: tuple[int, int], number: int, step: int, launch: int) -> None:
        index, count = share
        before = self.state.done
        self._guarded(index, functools.partial(self._turn, number=number, step=step, launch=launch, count=count))
        self.state.done = before + count
        of = f"/{self.state.launches}" if self.state.launches else ""
        self._report(f"launch {launch + 1}{of}, turn {len(self.state.order)}", self.state.done, self._total)

    def _guarded(self, index: int, step: Callable[[Lane], None]) -> None:
        lane = self.state.lanes[index]
        outcome = self.state.outcomes[lane.experiment.name]
        if outcome.failure is None:
            try:
                step(lane)
            except KitError as error:
                outcome.failure = error
                # What is left of it must not run beside the others.
                for label in [other.label for other in self.state.lanes if other.experiment is lane.experiment]:
                    if label in self._sessions:
                        self._sessions.pop(label).close()

    def _open(self, lane: Lane, launch: int) -> None:
        experiment, outcome = lane.experiment, self.state.outcomes[lane.experiment.name]
        if launch == 0:
            self._report(f"loading {experiment.name}", self.state.done, self._total)
        program, reading = outcome.program, None
        method = experiment.method or (usual_method(program.pte) if outcome.runner.kind != "runtime" else None)
        if experiment.phase is not None:
            assert program.sequence is not None and program.tokens is not None
            method, reading = token_plan(program.sequence, experiment, program.tokens)
        request = LaunchRequest(
            runner=outcome.runner,
            model=program.pte,
            inputs=() if reading is not None else program.inputs,
            threads=experiment.num_threads,
            warmup=self.state.warmup(lane),
            disable_features=tuple(experiment.disable_features),
            log=outcome.file(".log"),
            etdump=outcome.dump(launch) if lane.kind in (LaneKind.TRACED, LaneKind.LAUNCHED) else None,
            output_base=outcome.file("_output") if outcome.done is None and self.state.keeps_outputs(lane) else None,
            kernel_trace=outcome.file(KERNEL_TRACE) if MODES[experiment.mode] == "trace" else None,
            timeout_s=self._timeout_s,
            launch_prefix=tuple(experiment.launch_prefix),
            affinity=experiment.affinity,
            once=lane.kind is LaneKind.STARTUP,
            cold=lane.kind is LaneKind.STARTUP and experiment.page_cache == "cold",
            workspace=experiment.workspace,
            weight_cache=experiment.weight_cache,
            method=method,
            reading=reading,
        )
        self._began[lane.label] = self._elapsed()
        began = time.monotonic()
        if lane.kind is LaneKind.LAUNCHED:
            self._sessions[lane.label] = LaunchedSession(self._platform, request)
            return
        session = self._platform.open(request)
        self._sessions[lane.label] = session
        if lane.kind is LaneKind.TRACED:
            outcome.traced_warmup = len(session.ready.warmup_ns)
        self.state.launch_s.setdefault(lane.label, time.monotonic() - began)
        if outcome.ready is None:
            self.state.note(progress_log.ExperimentStart(experiment.name, session.features, session.ready))

    def _choose_settle_runs(self) -> int:
        if not any(lane.kind is LaneKind.TIMED for lane in self.state.lanes):
            return 0
        warm = [
            min(o.ready.warmup_ns) for o in self.state.outcomes.values() if o.ready is not None and o.ready.warmup_ns
        ]
        return 1 if not warm or max(warm) < _SETTLE_BELOW_NS else 0

    def _elapsed(self) -> float:
        return round(time.monotonic() - self.state.start, 6)

    def _turn(self, lane: Lane, number: int, step: int, launch: int, count: int) -> None:
        if lane.kind is LaneKind.STARTUP:
            # It has executed, and ended.
            first_ns = self._sessions[lane.label].ready.warmup_ns[:1]
            turn = Turn(len(self.state.order) - 1, self._began[lane.label], first_ns, 0, launch)
            self.state.note(progress_log.TurnRecord(number, step, lane.label, turn))
            return
        at_s = self._elapsed()
        session, began = self._sessions[lane.label], time.monotonic()
        # An execution that others interrupt at the beginning of a turn counts as interrupted, and not as time.
        first = self.state.uncounted(lane)
        times = session.run(first + count, self.state.settles(lane))[first:]
        if lane.kind is LaneKind.LAUNCHED:
            # Such a runner is started by its turn: all that was not execution.
            self.state.launch_s.setdefault(lane.label, max(0.0, time.monotonic() - began - sum(times) / 1e9))
        preempted = min(session.preempted, count)
        taken = Turn(len(self.state.order) - 1, at_s, times, preempted, launch, session.resident)
        self.state.note(progress_log.TurnRecord(number, step, lane.label, taken))

    def _finish(self, lane: Lane, number: int, launch: int) -> None:
        session, began = self._sessions.pop(lane.label), time.monotonic()
        try:
            done = session.finish()
        finally:
            session.close()
        if not self._planned and lane.label in self.state.launch_s:
            # On a device, ending a process and fetching its files takes time too.
            self.state.launch_s[lane.label] += time.monotonic() - began
        outcome = self.state.outcomes[lane.experiment.name]
        first = outcome.done is None and self.state.keeps_outputs(lane)
        self.state.note(
            progress_log.ProcessEnd(
                number,
                lane.label,
                launch,
                self.state.launch_s.get(lane.label),
                done if first else None,
                self._process(lane, launch, session, done),
            )
        )

    def _process(self, lane: Lane, launch: int, session: Session, done: Done) -> Process | None:
        """Return what is known of a process that has ended; None of those with a tracer, which changes both."""
        if lane.kind is LaneKind.TRACED:
            return None
        ready, began = session.ready, self._began.pop(lane.label)
        return Process(
            launch=launch,
            at_s=began,
            runs=len(ready.warmup_ns) + done.runs,
            first_ns=ready.warmup_ns[0] if ready.warmup_ns else 0,
            life_ns=session.life_ns,
            resident_last=done.resident,
            peak=done.peak,
            warmups=len(ready.warmup_ns),
            **shared_fields(ready, Process),
        )
