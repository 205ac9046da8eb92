"""The dashboard of runs that are going, for a browser on this machine: python -m analysis.report --serve

It listens on the loopback alone, answers two addresses, and reads the CSVs anew for each look.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from analysis import dashboard, html

HOST = "127.0.0.1"
LOOK = 5000  # milliseconds between two looks at the runs


def page(root: Path) -> str:
    sections = {"Your runs": dashboard.section(root, live=LOOK)}
    lead = f"Live: runs below `{root}`, looked at every {LOOK // 1000} seconds."
    return html.page(
        "AMPED: runs", lead, sections, "`python -m analysis.report` has the rest.", live=True
    )


def handler(root: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another name for this machine would be a foreign page that asks through it.
            if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
                self.answer(403, "text/plain", "ask for http://127.0.0.1")
            elif self.path.partition("#")[0] == "/":
                self.answer(200, "text/html", page(root))
            elif self.path == "/data.json":
                shown = dashboard.curves(root)
                told = dashboard.told(root, shown)
                self.answer(200, "application/json", json.dumps({"curves": shown, "told": told}))
            else:
                self.answer(404, "text/plain", "there is / and /data.json")

        def answer(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def server(root: Path, port: int) -> ThreadingHTTPServer:
    return ThreadingHTTPServer((HOST, port), handler(root))


def serve(root: Path, port: int) -> None:
    with server(root, port) as listening:
        print(f"http://{HOST}:{listening.server_address[1]} (Ctrl-C ends it)", flush=True)
        listening.serve_forever()
