"""A receiver of Trellis' webhooks: it verifies each post, and answers approvals of small refunds by itself.

    pip install standardwebhooks
    WEBHOOK_SECRET=whsec_… TRELLIS_URL=http://127.0.0.1:7070 python config/examples/webhook_receiver.py 8099

The secret is the value of the secret that `trellis webhook set … --secret s/HOOK` names.
"""

import json
import os
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

SEEN = set()


def answer(venue, event):
    """Approves the call that waits, if it is one that nobody needs to look at. The digest binds the answer to it."""
    call = (event["data"].get("approval") or {}).get("call")
    how = event["data"].get("answer")
    if event["type"] != "approval-asked" or call is None or how is None:
        return
    if call["arguments"].get("value", 1_000) > 50:
        return
    http = how["http"]
    request = urllib.request.Request(
        venue + http["path"],
        json.dumps(http["bodies"]["approve"]).encode(),
        {"content-type": "application/json"},
        method=http["method"],
    )
    urllib.request.urlopen(request, timeout=10).close()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, dict(self.headers.items()))
        except WebhookVerificationError as error:
            print("refused:", error, flush=True)
            self.send_error(400)
            return
        # The same notification may come again: after a crash, or when an answer was late.
        if self.headers["webhook-id"] not in SEEN:
            SEEN.add(self.headers["webhook-id"])
            print(event["type"], event["data"].get("agent", "-"), flush=True)
            if "TRELLIS_URL" in os.environ:
                answer(os.environ["TRELLIS_URL"], event)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
