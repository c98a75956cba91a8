// Pages of the documentation, which the gateway serves beside the console, by the console's routes.

/** Page of the book for a route: a page's name, one of its tabs, or with `*` the tab of any thing of the page. */
export const docsByRoute: Readonly<Record<string, string>> = {
  chat: 'console-tour',
  mine: 'people-and-roles',
  inbox: 'approvals',
  'inbox/deliveries': 'operating',
  'inbox/letters': 'operating',
  'inbox/proposals': 'self',
  now: 'console-tour',
  runs: 'runs',
  agents: 'console-tour',
  'agents/*/files': 'self',
  'agents/*/tools': 'policy',
  'agents/*/skills': 'skills',
  'agents/*/behaviors': 'behaviours',
  'agents/*/todos': 'todos',
  'agents/*/worklog': 'todos',
  'agents/*/workspace': 'workspaces',
  'agents/*/economy': 'economy',
  'agents/*/subagents': 'subagents',
  schedules: 'schedules',
  'schedules/heartbeats': 'heartbeat',
  channels: 'channels',
  'channels/bindings': 'routing',
  'channels/rules': 'routing',
  'channels/identities': 'routing',
  'channels/explain': 'routing',
  memory: 'memory-use',
  skills: 'skills',
  'skills/mcp': 'mcp',
  'skills/connections': 'connections',
  'skills/nodes': 'nodes',
  models: 'models',
  usage: 'models',
  mesh: 'operating',
  'mesh/tenants': 'tenants',
  'mesh/plans': 'tenants',
  'mesh/events': 'events',
  settings: 'people-and-roles',
  'settings/webhooks': 'events',
  'settings/export': 'operating',
  'settings/security': 'security',
};

/** Address of a page of the book, with the heading behind `#` if there is one. */
export function docsAddress(page: string, heading = ''): string {
  return `/docs/${page}.html${heading}`;
}

/** Address of the page of the book that explains this page of the console. */
export function docsFor([page = 'chat', ...rest]: string[]): string {
  const keys = [`${page}/*/${rest[1]}`, `${page}/${rest[0]}`, page];
  const key = keys.find((key) => Object.hasOwn(docsByRoute, key));
  return key === undefined ? '/docs/' : docsAddress(docsByRoute[key]!);
}
