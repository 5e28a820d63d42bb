# SPDX-License-Identifier: Apache-2.0

"""A receiver of webhooks: receiver.py PORT SECRET_FILE MODE_FILE LOG_FILE.

It answers with the status in MODE_FILE, or with 503 after a minute for "slow". Each
request becomes a line of LOG_FILE, with the judgement of its signature.
"""

import base64
import hashlib
import hmac
import http.server
import json
import sys
import threading
import time

port, secret_file, mode_file, log_file = sys.argv[1:]
lock = threading.Lock()


def content(path):
    with open(path, "rb") as f:
        return f.read().strip()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = b".".join([self.headers["webhook-id"].encode(), self.headers["webhook-timestamp"].encode(), body])
        mac = base64.b64encode(hmac.new(content(secret_file), signed, hashlib.sha256).digest()).decode()
        mode = content(mode_file).decode()
        status = 503 if mode == "slow" else int(mode)

        with lock, open(log_file, "a") as log:
            print(json.dumps({
                "id": self.headers["webhook-id"], "path": self.path, "mode": mode, "event": json.loads(body),
                "signed": self.headers["webhook-signature"] == "v1," + mac,
                "age": abs(time.time() - int(self.headers["webhook-timestamp"])),
            }), file=log, flush=True)

        if mode == "slow":
            time.sleep(60)

        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()


http.server.ThreadingHTTPServer(("0.0.0.0", int(port)), Receiver).serve_forever()
