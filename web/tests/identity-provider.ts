// An identity provider (OpenID Connect) on this machine, with a page on which a person says who they are.
// Its port and key are those that the mesh was started with, so that each worker can serve it again.
import { createHash, createPrivateKey, generateKeyPairSync, randomUUID, sign, type JsonWebKey } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

/** What a mesh knows of its identity provider. */
export type ProviderSettings = { port: number; key: JsonWebKey };

/** Somebody who can sign in, by the claims of their token. */
export type Member = { sub: string; name: string; org: string; groups: string[] };

/** Name of the provider on the console's button. */
export const PROVIDER_NAME = 'Test Login';

/** Roles of the groups that a token names. */
export const GROUPS = { readers: 'viewer', staff: 'member', support: 'operator', admins: 'owner' } as const;

const CLIENT_ID = 'holdfast-console';
const CLIENT_SECRET = 'secret-of-the-console';
const BASIC = `Basic ${Buffer.from(`${CLIENT_ID}:${CLIENT_SECRET}`).toString('base64')}`;
const TOKEN_LIFETIME_SECONDS = 3600;

type OpenCode = { member: Member; challenge: string; nonce: string; redirect: string };

export function newProviderSettings(port: number): ProviderSettings {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return { port, key: privateKey.export({ format: 'jwk' }) };
}

export function addressOf({ port }: ProviderSettings): string {
  return `http://127.0.0.1:${port}`;
}

/** Settings of the gateway, in TOML. A person's tenant is the one that the claim `org` names. */
export function gatewaySettings(provider: ProviderSettings): string {
  const roles = Object.entries(GROUPS).map(([group, role]) => `${group} = "${role}"`);
  return `[[oidc.issuers]]
url = "${addressOf(provider)}"
audiences = ["${CLIENT_ID}"]
tenant_claim = "org"
roles = { ${roles.join(', ')} }

[oidc.issuers.console]
name = "${PROVIDER_NAME}"
client_id = "${CLIENT_ID}"
client_secret = "${CLIENT_SECRET}"
`;
}

/** A port of this machine that nobody uses now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class IdentityProvider {
  /** Those who can sign in, as the page lists them. */
  members: Member[] = [];
  private readonly codes = new Map<string, OpenCode>();
  private readonly server: Server;

  private constructor(private readonly settings: ProviderSettings) {
    this.server = createServer((request, answer) => {
      this.serve(request, answer).catch((error: unknown) => answer.writeHead(500).end(String(error)));
    });
  }

  static async start(settings: ProviderSettings): Promise<IdentityProvider> {
    const provider = new IdentityProvider(settings);
    await new Promise<void>((resolve, reject) => {
      provider.server.once('error', reject);
      provider.server.listen(settings.port, '127.0.0.1', resolve);
    });
    return provider;
  }

  get url(): string {
    return addressOf(this.settings);
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private async serve(request: IncomingMessage, answer: ServerResponse) {
    const { pathname, searchParams: asked } = new URL(request.url ?? '/', this.url);
    switch (pathname) {
      case '/.well-known/openid-configuration':
        return json(answer, 200, this.discovery());
      case '/keys':
        return json(answer, 200, { keys: [{ kty: 'EC', crv: 'P-256', x: this.settings.key.x, y: this.settings.key.y, kid: 'key', alg: 'ES256', use: 'sig' }] });
      case '/authorize':
        return this.showMembers(asked, answer);
      case '/continue':
        return this.goBack(asked, answer);
      case '/token':
        return this.redeem(request, answer);
      default:
        // Such as the icon that a browser asks for.
        return answer.writeHead(204).end();
    }
  }

  private discovery() {
    return {
      issuer: this.url,
      jwks_uri: `${this.url}/keys`,
      authorization_endpoint: `${this.url}/authorize`,
      token_endpoint: `${this.url}/token`,
    };
  }

  private showMembers(asked: URLSearchParams, answer: ServerResponse) {
    if (asked.get('client_id') !== CLIENT_ID || asked.get('response_type') !== 'code' || asked.get('code_challenge_method') !== 'S256') {
      return answer.writeHead(400).end('this client is not known');
    }
    const link = (member: string, label: string) => {
      const to = new URLSearchParams([...asked, ['member', member]]);
      return `<p><a href="/continue?${to.toString().replaceAll('&', '&amp;')}">${label}</a></p>`;
    };
    const links = [...this.members.map(({ sub, name }) => link(sub, name)), link('', 'Refuse')];
    answer.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    answer.end(`<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Who are you?</title><h1>Who are you?</h1>${links.join('')}</html>`);
  }

  private goBack(asked: URLSearchParams, answer: ServerResponse) {
    const redirect = asked.get('redirect_uri') ?? '';
    const back = new URL(redirect);
    back.searchParams.set('state', asked.get('state') ?? '');
    const member = this.members.find(({ sub }) => sub === asked.get('member'));
    if (member) {
      const code = randomUUID();
      this.codes.set(code, { member, redirect, challenge: asked.get('code_challenge') ?? '', nonce: asked.get('nonce') ?? '' });
      back.searchParams.set('code', code);
    } else {
      back.searchParams.set('error', 'access_denied');
    }
    answer.writeHead(303, { location: back.href }).end();
  }

  /** Gives an ID token for a code, once, to the client that asked for it. */
  private async redeem(request: IncomingMessage, answer: ServerResponse) {
    const form = new URLSearchParams(await text(request));
    const code = form.get('code') ?? '';
    const open = this.codes.get(code);
    this.codes.delete(code);
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    const isGood = open && open.challenge === challenge && open.redirect === form.get('redirect_uri') && request.headers.authorization === BASIC;
    if (!isGood) return json(answer, 400, { error: 'invalid_grant' });
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: this.url, aud: CLIENT_ID, iat: now, exp: now + TOKEN_LIFETIME_SECONDS, nonce: open.nonce, ...open.member };
    return json(answer, 200, { id_token: this.token(claims), access_token: 'opaque', token_type: 'Bearer' });
  }

  private token(claims: object): string {
    const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const content = `${part({ alg: 'ES256', kid: 'key', typ: 'JWT' })}.${part(claims)}`;
    const key = createPrivateKey({ key: this.settings.key, format: 'jwk' });
    return `${content}.${sign('sha256', Buffer.from(content), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
  }
}

function json(answer: ServerResponse, status: number, body: object) {
  answer.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
