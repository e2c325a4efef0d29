"""A run: opened, looked at, saved, reported."""

from pathlib import Path

from model_profiling.analysis.run_view import RunView
from model_profiling.derived import Outdated


class Run(RunView):
    """A run directory, or one ETDump, that is read and analysed once, when first asked."""

    def save(self) -> list[Outdated]:
        """Write everything that derives from the run into its directory, apart from reports.

        Returns which files there show an earlier state of it; those that nobody has edited are gone.
        """
        from model_profiling.report.artifact_files import save

        return save(self)

    def report(
        self, output: str | Path | None = None, title: str = "", html: bool = False, markdown: bool = True
    ) -> list[Path]:
        """Write a report and say where: Markdown with pictures and a trace; with `html` also one page.

        A name that ends in .html asks for the page and nothing else. By default it is report.md in the run directory.
        """
        from model_profiling.artifacts import REPORT
        from model_profiling.report.drawing import Artist
        from model_profiling.report.report_files import write_report

        place = Path(output) if output is not None else self.path / REPORT
        only_page = place.suffix == ".html"
        with Artist() as artist:
            return write_report(self, artist, place, title, markdown and not only_page, html or only_page)[0]
