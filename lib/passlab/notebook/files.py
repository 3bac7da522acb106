"""The files that JupyterLab lists for a learner: each lesson and exercise once."""

from __future__ import annotations

from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

#: Folders of the course whose notebooks stand beside the text that they are made from.
PAIRED = ("course", "solutions")
#: Folders whose notebooks a learner has as copies in `work/`.
COPIED = ("course", "exercises")


class CourseFiles(AsyncLargeFileManager):
    """Files of a course. Lists leave out a notebook's text, and the folders of which `work/` has copies.

    What a list leaves out can be opened by a link.
    """

    async def get(self, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        model = await super().get(path, *args, **options)
        if model["type"] == "directory" and model["content"] is not None:
            names = {entry["name"] for entry in model["content"]}
            hidden = set(COPIED) if not path.strip("/") and await self.dir_exists("work/course") else set()
            if path.strip("/").split("/")[0] in PAIRED:
                hidden |= {f"{name.removesuffix('.ipynb')}.py" for name in names if name.endswith(".ipynb")}
            model["content"] = [entry for entry in model["content"] if entry["name"] not in hidden]
        return model
