// A real mesh: gateway, two runners and the other services as processes of their own, with their
// databases and a scripted model. It outlives the worker that started it, since a failed test ends
// its worker; `Mesh.stopAll` ends all of them.
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Session } from './api';
import { freePort, gatewaySettings, newProviderSettings, type ProviderSettings } from './identity-provider';
import { addContents, addPlans } from './contents';
import { Model } from './model';
import { eventually, isRunning, kill, output, startDetached, type Environment } from './processes';
import { Proxy } from './proxy';
import { Console } from '../src/api/gen/holdfast/gateway/v1/console_pb';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const MESHES = join(ROOT, '.holdfast/web');
const PROGRAMS = process.env['HOLDFAST_PROGRAMS'] ?? join(process.env['CARGO_TARGET_DIR'] ?? join(ROOT, 'target'), 'debug');
const MODEL = 'fake_model';

/** What callers may do: the scopes of their sign-in. */
export const ROLES = {
  viewer: ['read'],
  member: ['read', 'chat'],
  approver: ['read', 'chat', 'approve'],
  owner: ['read', 'chat', 'approve', 'admin', 'owner'],
  platform: ['read', 'chat', 'approve', 'admin', 'owner', 'platform'],
} as const;

export type Role = keyof typeof ROLES;

/** Roles of people, which are not limited by scopes. */
export type PersonRole = 'guest' | 'viewer' | 'member' | 'approver' | 'operator' | 'owner';

export type Tenant = { name: string; key: string };

/** A tenant with contents. */
export type SeededTenant = Tenant & {
  /** Id of the session with the most entries. */
  longSession: string;
};

/** What is written down for the next worker. */
type Stored = {
  model: { pid: number; url: string };
  /** Identity provider of the gateway; tests that need it serve it. */
  provider: ProviderSettings;
  /** Of the proxy, so that the origin stays the same. */
  port: number;
  seeded?: { small?: SeededTenant; full?: SeededTenant };
};

export class Mesh {
  /** Sign-ins by key: they are limited for an address. */
  private readonly sessions = new Map<string, Promise<Session>>();

  private constructor(
    readonly folder: string,
    /** Key of the first tenant, with every scope. */
    readonly key: string,
    readonly model: Model,
    readonly proxy: Proxy,
    /** Where the gateway expects its identity provider; no test but those of people needs it. */
    readonly provider: ProviderSettings,
  ) {}

  /** Address of the console's origin, through the proxy. */
  get url(): string {
    return `http://127.0.0.1:${this.proxy.port}`;
  }

  /** The mesh of a worker: the running one, or a new one. */
  static async get(worker: number): Promise<Mesh> {
    const folder = join(MESHES, String(worker));
    let stored = readStored(folder);
    if (!stored?.provider || !isRunning(stored.model.pid, MODEL) || !existsSync(join(folder, 'state.json'))) {
      await stop(folder);
      stored = await start(folder);
    }
    const { gateways } = readJson(join(folder, 'state.json')) as { gateways: { http: string }[] };
    const proxy = await Proxy.start(gateways[0]!.http, stored.port);
    writeStored(folder, { ...stored, port: proxy.port });
    const key = readFileSync(join(folder, 'dev.key'), 'utf8').trim();
    return new Mesh(folder, key, new Model(stored.model.url), proxy, stored.provider);
  }

  /** Ends all meshes of tests in this checkout. */
  static async stopAll(): Promise<void> {
    if (!existsSync(MESHES)) return;
    for (const name of readdirSync(MESHES)) await stop(join(MESHES, name));
  }

  /** Runs `holdfast` and returns what it printed as JSON. */
  async command(words: string[], key = this.key): Promise<unknown> {
    const environment = { HOLDFAST_API_KEY: key, HOLDFAST_URL: undefined };
    const printed = await output(join(PROGRAMS, 'holdfast'), ['--dir', this.folder, '--output', 'json', ...words], environment);
    return printed.trim() ? JSON.parse(printed) : undefined;
  }

  /** Makes a tenant whose agents ask the scripted model. */
  async tenant(name: string): Promise<Tenant> {
    const { secret } = (await this.command(['tenants', 'create', name])) as { secret: string };
    await this.command(['tenants', 'update', name, '--rate', '1000000']);
    await useModel(this.folder, secret, this.model.url);
    return { name, key: secret };
  }

  /** The first tenant. */
  get ownTenant(): Tenant {
    return { name: 'dev', key: this.key };
  }

  /** The sign-in of this process with a key. */
  session(key: string): Promise<Session> {
    const known = this.sessions.get(key) ?? Session.begin(this.url, { key });
    this.sessions.set(key, known);
    return known;
  }

  /** Makes a one-time link for somebody with a role. Returns its token. */
  async linkToken(tenant: Tenant, role: Role): Promise<string> {
    const session = await this.session(tenant.key);
    const { token } = await session.client(Console).createSignInLink({ scopes: [...ROLES[role]], name: role });
    return token;
  }

  /** Address that signs in once. */
  async signInLink(tenant: Tenant, role: Role, path = '/console/'): Promise<string> {
    return `${this.url}${path}#link=${encodeURIComponent(await this.linkToken(tenant, role))}`;
  }

  /** Invites a person. Returns the address with which they sign in first. */
  async invitationLink(tenant: Tenant, name: string, role: PersonRole, path = '/console/'): Promise<string> {
    const session = await this.session(tenant.key);
    const { token } = await session.client(Console).invitePerson({ name, role });
    return `${this.url}${path}#link=${encodeURIComponent(token)}`;
  }

  /** A tenant with contents, made once for a mesh. */
  async seededTenant(amount: 'small' | 'full'): Promise<SeededTenant> {
    const stored = readStored(this.folder)!;
    const known = stored.seeded?.[amount];
    if (known) return known;
    const tenant = await this.tenant(`seeded-${amount}`);
    const seeded = { ...tenant, longSession: await this.seed(tenant, amount) };
    await addContents(await this.session(tenant.key), this.model);
    await addPlans(await this.session(this.key));
    writeStored(this.folder, { ...stored, seeded: { ...stored.seeded, [amount]: seeded } });
    return seeded;
  }

  /** Fills a tenant with a month of conversations; `tests/src/bin/seed` says with what. Returns the id of its longest session. */
  private async seed(tenant: Tenant, amount: 'small' | 'full'): Promise<string> {
    const state = readJson(join(this.folder, 'state.json')) as { gateways: { grpc: string }[] };
    const words = ['--grpc', state.gateways[0]!.grpc, '--key', tenant.key, '--database', this.database(), '--model', this.model.url];
    if (amount === 'small') words.push('--small');
    const printed = await output(join(PROGRAMS, 'seed'), words);
    return (JSON.parse(printed) as { long_session: string }).long_session;
  }

  /** Address of the database, with all rights. */
  private database(): string {
    const backends = readJson(join(this.folder, 'backends/state.json')) as { postgres: { admin_url: string; url: string } };
    const { admin_url: admin, url } = backends.postgres;
    return admin.slice(0, admin.lastIndexOf('/')) + url.slice(url.lastIndexOf('/'));
  }

  /** Runs SQL in the database, for contents that the API would make too slowly. */
  async sql(text: string): Promise<void> {
    const psql = join(this.folder, 'backends/pkg/embedded_postgres/pginstall/bin/psql');
    await output(psql, ['--no-psqlrc', '--quiet', '--set', 'ON_ERROR_STOP=1', '--command', text, this.database()]);
  }

  /** Makes a tenant with contents, for a test that changes them. */
  async newSeededTenant(name: string): Promise<SeededTenant> {
    const tenant = await this.tenant(name);
    return { ...tenant, longSession: await this.seed(tenant, 'small') };
  }

  /** Kills the gateway as a crash would, and waits until it is there again. */
  async killGateway(): Promise<void> {
    await this.killService('gateway-1');
    await this.ready();
  }

  /** Kills both runners as a crash would; they come back by themselves. */
  async killRunners(): Promise<void> {
    await Promise.all([this.killService('agent-runner-1'), this.killService('agent-runner-2')]);
  }

  /** Stops Postgres, does something without it, and starts it again. */
  async withoutPostgres(during: () => Promise<void>): Promise<void> {
    await this.backend('stop', 'postgres');
    try {
      await during();
    } finally {
      await this.backend('start', 'postgres');
    }
    await this.ready();
  }

  /** Process ids of the services by their names. */
  services(): Record<string, number> {
    const folder = join(this.folder, 'run');
    const files = readdirSync(folder).filter((name) => name.endsWith('.pid'));
    return Object.fromEntries(files.map((file) => [file.replace(/\.pid$/, ''), Number(readFileSync(join(folder, file), 'utf8'))]));
  }

  private async backend(action: 'start' | 'stop', name: string) {
    await output('python3', [join(this.folder, 'backends.py'), action, name, '--dir', join(this.folder, 'backends')]);
  }

  private async killService(name: string) {
    const file = join(this.folder, 'run', `${name}.pid`);
    const pid = Number(readFileSync(file, 'utf8'));
    kill(pid);
    await eventually(`${name} was started again`, () => existsSync(file) && Number(readFileSync(file, 'utf8')) !== pid);
  }

  /** Waits until the gateway answers. */
  async ready(): Promise<void> {
    const { gateways } = readJson(join(this.folder, 'state.json')) as { gateways: { http: string }[] };
    await eventually('the gateway is ready', async () => {
      const answer = await fetch(`${gateways[0]!.http}/readyz`).catch(() => undefined);
      return answer?.ok;
    });
  }
}

async function start(folder: string): Promise<Stored> {
  mkdirSync(folder, { recursive: true });
  // The packages of the databases are those of the other tests, if they were installed.
  const [packages, shared] = [join(folder, 'backends/pkg'), join(ROOT, '.holdfast/test/pkg')];
  if (existsSync(shared)) {
    mkdirSync(dirname(packages), { recursive: true });
    symlinkSync(shared, packages);
  }
  const log = join(folder, 'model.log');
  const pid = startDetached(join(PROGRAMS, MODEL), [], log);
  const url = await eventually('the model has started', () => readFileSync(log, 'utf8').match(/^http:\S+(?=\/v1\n)/)?.[0]);
  const provider = newProviderSettings(await freePort());
  const stored: Stored = { model: { pid, url }, provider, port: 0 };
  writeStored(folder, stored);
  // Issuers can be set in a file only.
  const file = join(folder, 'settings.toml');
  writeFileSync(file, gatewaySettings(provider));
  const settings: Environment = {
    HOLDFAST_CONFIG: file,
    HOLDFAST_EGRESS__ALLOW: '["127.0.0.1"]',
    // Pages that agents fetch are served by the tests.
    HOLDFAST_RUNNER__WEB__ALLOW: '["127.0.0.1"]',
    HOLDFAST_GATEWAY__CONSOLE__DIR: join(ROOT, 'web/dist'),
  };
  // Those of a person's own mesh would be used instead.
  for (const name of Object.keys(process.env)) {
    if (name.startsWith('HOLDFAST_') && !(name in settings)) settings[name] = undefined;
  }
  const words = ['--dir', folder, 'up', '--detach', '--port-base', '0', '--split', '--runners', '2'];
  await output(join(PROGRAMS, 'holdfast'), words, settings);
  await useModel(folder, readFileSync(join(folder, 'dev.key'), 'utf8').trim(), url);
  return stored;
}

async function useModel(folder: string, key: string, url: string) {
  const words = ['providers', 'put', 'scripted', '--base-url', `${url}/v1`, '--api-key', 'k', '--model', 'scripted:one'];
  await output(join(PROGRAMS, 'holdfast'), ['--dir', folder, ...words], { HOLDFAST_API_KEY: key });
}

async function stop(folder: string): Promise<void> {
  if (!existsSync(folder)) return;
  const stored = readStored(folder);
  if (stored && isRunning(stored.model.pid, MODEL)) kill(stored.model.pid);
  await output(join(PROGRAMS, 'holdfast'), ['--dir', folder, 'down']);
  rmSync(folder, { recursive: true, force: true });
}

function readJson(path: string): unknown {
  return JSON.parse(readFileSync(path, 'utf8'));
}

function readStored(folder: string): Stored | undefined {
  const path = join(folder, 'test.json');
  return existsSync(path) ? (readJson(path) as Stored) : undefined;
}

function writeStored(folder: string, stored: Stored) {
  writeFileSync(join(folder, 'test.json'), JSON.stringify(stored));
}
