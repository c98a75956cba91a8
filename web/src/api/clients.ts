// Clients of all services of the gateway.
import type { DescService } from '@bufbuild/protobuf';
import { Code, ConnectError, createClient, type Client, type Interceptor } from '@connectrpc/connect';
import { createGrpcWebTransport } from '@connectrpc/connect-web';
import { Approvals } from './gen/holdfast/gateway/v1/approvals_pb';
import { Audit } from './gen/holdfast/gateway/v1/audit_pb';
import { Behaviors } from './gen/holdfast/gateway/v1/behaviors_pb';
import { Console } from './gen/holdfast/gateway/v1/console_pb';
import { Connections } from './gen/holdfast/gateway/v1/connections_pb';
import { Agents, Channels, Keys, Providers, Routing, Tenants } from './gen/holdfast/gateway/v1/control_pb';
import { Devices } from './gen/holdfast/gateway/v1/devices_pb';
import { Economy } from './gen/holdfast/gateway/v1/economy_pb';
import { EventWebhooks } from './gen/holdfast/gateway/v1/events_pb';
import { Files } from './gen/holdfast/gateway/v1/files_pb';
import { Heartbeats } from './gen/holdfast/gateway/v1/heartbeats_pb';
import { McpServers } from './gen/holdfast/gateway/v1/mcp_pb';
import { Knowledge, Memories } from './gen/holdfast/gateway/v1/memories_pb';
import { Mesh } from './gen/holdfast/gateway/v1/mesh_pb';
import { Messages } from './gen/holdfast/gateway/v1/messages_pb';
import { Budgets, Credentials, Models } from './gen/holdfast/gateway/v1/models_pb';
import { Nodes } from './gen/holdfast/gateway/v1/nodes_pb';
import { Operations } from './gen/holdfast/gateway/v1/operations_pb';
import { People } from './gen/holdfast/gateway/v1/people_pb';
import { Plans, UsageReports } from './gen/holdfast/gateway/v1/plans_pb';
import { Policies } from './gen/holdfast/gateway/v1/policies_pb';
import { Proposals } from './gen/holdfast/gateway/v1/proposals_pb';
import { Schedules } from './gen/holdfast/gateway/v1/schedules_pb';
import { Runs } from './gen/holdfast/gateway/v1/runs_pb';
import { Security } from './gen/holdfast/gateway/v1/security_pb';
import { Sessions } from './gen/holdfast/gateway/v1/sessions_pb';
import { Settings } from './gen/holdfast/gateway/v1/settings_pb';
import { Packages, Skills } from './gen/holdfast/gateway/v1/skills_pb';
import { Chains, Subagents } from './gen/holdfast/gateway/v1/subagents_pb';
import { Work } from './gen/holdfast/gateway/v1/work_pb';
import { Workspaces } from './gen/holdfast/gateway/v1/workspaces_pb';
import { isAway } from './errors';
import { untilSilence } from './silence';
import { SESSION_HEADER, sessionId } from './token';

/** Pauses before a call that only reads is tried again, in milliseconds. */
const READ_AGAIN_AFTER = [300, 1200, 3000];

let onSignedOut: (() => void) | undefined;

/** Sets what happens when the gateway refuses the sign-in. */
export function whenSignedOut(call: () => void) {
  onSignedOut = call;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Calls that change nothing may be made again. */
function onlyReads(method: string): boolean {
  return /^(list|get|search|describe|explain|check|diff|read|render|validate)/i.test(method);
}

/** Names the sign-in, reads again while the gateway is away, and notices that a sign-in has ended. */
const common: Interceptor = (next) => async (request) => {
  const id = sessionId();
  request.header.set(SESSION_HEADER, id);
  const reads = !request.stream && onlyReads(request.method.name);
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await untilSilence(request.signal, reads, (signal) => next({ ...request, signal }));
    } catch (thrown) {
      const error = asUnavailable(thrown);
      if (error.code === Code.Unauthenticated && id === sessionId()) onSignedOut?.();
      const wait = READ_AGAIN_AFTER[attempt];
      if (!isAway(error) || wait === undefined || !reads || request.signal.aborted) throw error;
      await pause(wait);
    }
  }
};

/** A fetch that had no answer is an unknown error of connect. */
function asUnavailable(thrown: unknown): ConnectError {
  const error = ConnectError.from(thrown);
  const hadNoAnswer = error.code === Code.Unknown && (thrown instanceof TypeError || error.cause instanceof TypeError);
  return hadNoAnswer ? new ConnectError(error.rawMessage, Code.Unavailable) : error;
}

const transport = createGrpcWebTransport({
  baseUrl: '/console/api',
  interceptors: [common],
  fetch: (input, init) => fetch(input, { ...init, credentials: 'same-origin', redirect: 'error' }),
});

const client = <T extends DescService>(service: T): Client<T> => createClient(service, transport);

export const agents = client(Agents);
export const approvals = client(Approvals);
export const audit = client(Audit);
export const behaviors = client(Behaviors);
export const budgets = client(Budgets);
export const chains = client(Chains);
export const channels = client(Channels);
/** Sign-ins of the console. */
export const signIns = client(Console);
export const connections = client(Connections);
export const credentials = client(Credentials);
export const devices = client(Devices);
export const economy = client(Economy);
export const eventWebhooks = client(EventWebhooks);
export const files = client(Files);
export const heartbeats = client(Heartbeats);
export const keys = client(Keys);
export const knowledge = client(Knowledge);
export const mcpServers = client(McpServers);
export const memories = client(Memories);
export const mesh = client(Mesh);
export const messages = client(Messages);
export const models = client(Models);
export const nodes = client(Nodes);
export const operations = client(Operations);
export const packages = client(Packages);
export const people = client(People);
export const plans = client(Plans);
export const policies = client(Policies);
export const proposals = client(Proposals);
export const providers = client(Providers);
export const routing = client(Routing);
export const runs = client(Runs);
export const schedules = client(Schedules);
export const security = client(Security);
export const sessions = client(Sessions);
export const settings = client(Settings);
export const skills = client(Skills);
export const subagents = client(Subagents);
export const tenants = client(Tenants);
export const usageReports = client(UsageReports);
export const work = client(Work);
export const workspaces = client(Workspaces);
