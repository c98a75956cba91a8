"""Sends a message to an agent and follows it to its answer, over lost connections too.

    python3 -m pip install grpcio grpcio-tools googleapis-common-protos grpcio-status
    python3 -m grpc_tools.protoc -I ../../../proto --python_out=. --grpc_python_out=. \
        ../../../proto/holdfast/gateway/v1/messages.proto
    HOLDFAST_API_KEY=hf_… python3 chat.py "hello"

`HOLDFAST_GRPC` is the address (127.0.0.1:18790). `HOLDFAST_CA_FILE` turns TLS on; it names a PEM file
with the authority of the gateway's certificate, or is `system`.
"""

import os
import sys
import time
import uuid
from pathlib import Path

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from holdfast.gateway.v1 import messages_pb2 as pb
from holdfast.gateway.v1.messages_pb2_grpc import MessagesStub

# The same call may succeed later.
TEMPORARY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def connect():
    address = os.environ.get("HOLDFAST_GRPC", "127.0.0.1:18790")
    authority = os.environ.get("HOLDFAST_CA_FILE")
    if not authority:
        return grpc.insecure_channel(address)
    roots = None if authority == "system" else Path(authority).read_bytes()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots))


def details(error):
    """The reason for programs, and the seconds to wait before the next try; None where there is none."""
    reason = delay = None
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == "holdfast.dev":
            reason = info.reason
        elif detail.Unpack(retry):
            delay = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return reason, delay


def retrying(call, tries=8):
    """Makes a call until it succeeds, fails for good, or was tried often enough."""
    for attempt in range(1, tries + 1):
        try:
            return call()
        except grpc.RpcError as error:
            reason, delay = details(error)
            # A quota does not pass by itself: such an error has no delay.
            passes = error.code() in TEMPORARY and (delay is not None or error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED)
            if not passes or attempt == tries:
                ids = dict(error.initial_metadata() or ())
                sys.exit(f"{error.code().name} {reason or ''}: {error.details()} (request {ids.get('x-request-id', 'unknown')})")
            time.sleep(delay if delay is not None else min(0.2 * 2**attempt, 10))


def ask(messages, text, session="", metadata=()):
    # With one id for all tries the message is accepted once, even if an acknowledgement is lost.
    request = pb.SendRequest(request_id=str(uuid.uuid4()), text=text, session=session)
    sent = retrying(lambda: messages.Send(request, metadata=metadata, timeout=10))

    def follow():
        for event in messages.Follow(pb.FollowRequest(message_id=sent.message_id), metadata=metadata):
            match event.WhichOneof("event"):
                case "text":
                    print(".", end="", file=sys.stderr, flush=True)
                case "tool_started":
                    print(f"\n[{event.tool_started.tool}]", file=sys.stderr)
                case "approval_requested":
                    asked = event.approval_requested
                    print(f"\n{asked.subject}\nholdfast approvals allow {asked.slug}", file=sys.stderr)
                case "done":
                    return event.done
        raise RuntimeError("the stream ended before the answer")

    return retrying(follow)


if __name__ == "__main__":
    key = os.environ["HOLDFAST_API_KEY"]
    done = ask(MessagesStub(connect()), " ".join(sys.argv[1:]), metadata=[("authorization", f"Bearer {key}")])
    print("", file=sys.stderr)
    if done.outcome != pb.OUTCOME_COMPLETED:
        sys.exit(f"{pb.Outcome.Name(done.outcome)}: {done.reason}")
    print(done.text)
