// Sends a message to an agent and follows it to its answer, over lost connections too.
//
//     npm install
//     HOLDFAST_API_KEY=hf_… npx tsx chat.ts "hello"
//
// `HOLDFAST_GRPC` is the address (127.0.0.1:18790). `HOLDFAST_CA_FILE` turns TLS on; it names a PEM
// file with the authority of the gateway's certificate, or is `system`.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

interface SendResponse {
  message_id: string;
  session_id: string;
  duplicate: boolean;
}
interface Done {
  outcome: string;
  text: string;
  reason: string;
}
interface RunEvent {
  event: "accepted" | "step_started" | "text" | "tool_started" | "tool_ended" | "approval_requested" | "done";
  done?: Done;
  tool_started?: { tool: string };
  approval_requested?: { slug: string; subject: string };
}
interface Messages extends grpc.Client {
  Send(
    request: { request_id: string; text: string; session: string },
    metadata: grpc.Metadata,
    options: grpc.CallOptions,
    callback: (error: grpc.ServiceError | null, response: SendResponse) => void,
  ): grpc.ClientUnaryCall;
  Follow(request: { message_id: string }, metadata: grpc.Metadata): grpc.ClientReadableStream<RunEvent>;
}

function connect(): Messages {
  const protos = fileURLToPath(new URL("../../../proto", import.meta.url));
  const definition = loadSync("holdfast/gateway/v1/messages.proto", {
    includeDirs: [protos], keepCase: true, enums: String, longs: String, defaults: true, oneofs: true,
  });
  const root = grpc.loadPackageDefinition(definition) as any;
  const authority = process.env.HOLDFAST_CA_FILE;
  const roots = authority && authority !== "system" ? readFileSync(authority) : null;
  const credentials = authority ? grpc.credentials.createSsl(roots) : grpc.credentials.createInsecure();
  return new root.holdfast.gateway.v1.Messages(process.env.HOLDFAST_GRPC ?? "127.0.0.1:18790", credentials);
}

// Milliseconds to wait before the next try, as the gateway says.
function delayOf(error: grpc.ServiceError): number | undefined {
  const told = error.metadata?.get("retry-after-ms")[0];
  return told === undefined ? undefined : Number(told);
}

async function retrying<T>(call: () => Promise<T>, tries = 8): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call();
    } catch (failed) {
      const error = failed as grpc.ServiceError;
      const delay = delayOf(error);
      // A quota does not pass by itself: such an error has no delay.
      const passes = error.code === grpc.status.UNAVAILABLE || error.code === grpc.status.DEADLINE_EXCEEDED
        || (error.code === grpc.status.RESOURCE_EXHAUSTED && delay !== undefined);
      if (!passes || attempt === tries) throw error;
      await sleep(delay ?? Math.min(200 * 2 ** attempt, 10_000));
    }
  }
}

async function ask(messages: Messages, text: string, metadata: grpc.Metadata): Promise<Done> {
  // With one id for all tries the message is accepted once, even if an acknowledgement is lost.
  const request = { request_id: randomUUID(), text, session: "" };
  const sent = await retrying(() => new Promise<SendResponse>((resolve, reject) => {
    messages.Send(request, metadata, { deadline: Date.now() + 10_000 },
      (error, response) => (error ? reject(error) : resolve(response)));
  }));
  return retrying(() => new Promise<Done>((resolve, reject) => {
    const events = messages.Follow({ message_id: sent.message_id }, metadata);
    events.on("data", (event: RunEvent) => {
      if (event.event === "tool_started") console.error(`[${event.tool_started!.tool}]`);
      if (event.event === "approval_requested") {
        console.error(`${event.approval_requested!.subject}\nholdfast approvals allow ${event.approval_requested!.slug}`);
      }
      if (event.event === "done") resolve(event.done!);
    });
    events.on("error", reject);
    events.on("end", () => reject(new Error("the stream ended before the answer")));
  }));
}

const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${process.env.HOLDFAST_API_KEY}`);
const messages = connect();
try {
  const done = await ask(messages, process.argv.slice(2).join(" "), metadata);
  if (done.outcome !== "OUTCOME_COMPLETED") throw new Error(`${done.outcome}: ${done.reason}`);
  console.log(done.text);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  messages.close();
}
