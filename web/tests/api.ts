// The gateway's API as the console calls it, for what a test prepares and compares.
import type { DescService } from '@bufbuild/protobuf';
import { createClient, type Client } from '@connectrpc/connect';
import { createGrpcWebTransport } from '@connectrpc/connect-web';
import type { Page } from '@playwright/test';

export type Credential = { key: string } | { link: string };

/** A sign-in outside of a browser. */
export class Session {
  private constructor(
    private readonly base: string,
    /** Public id. */
    readonly id: string,
    /** Name and secret, as browsers send them. */
    readonly cookie: string,
  ) {}

  static async begin(base: string, credential: Credential): Promise<Session> {
    const answer = await postSignIn(base, credential);
    if (!answer.ok) throw new Error(`the sign-in was refused: ${answer.status} ${await answer.text()}`);
    const { session } = (await answer.json()) as { session: string };
    const cookie = answer.headers.getSetCookie()[0]?.split(';')[0];
    if (!cookie) throw new Error('the sign-in has set no cookie');
    return new Session(base, session, cookie);
  }

  /** The sign-in of a page, for calls that the page does not offer. */
  static async ofPage(page: Page): Promise<Session> {
    const id = await page.evaluate(() => sessionStorage.getItem('holdfast.session') ?? '');
    const cookie = (await page.context().cookies()).find(({ name }) => name.includes(id));
    if (!id || !cookie) throw new Error('nobody is signed in in this page');
    return new Session(new URL(page.url()).origin, id, `${cookie.name}=${cookie.value}`);
  }

  client<T extends DescService>(service: T): Client<T> {
    const { base, id, cookie } = this;
    const transport = createGrpcWebTransport({
      baseUrl: `${base}/console/api`,
      fetch: (input, init) => {
        const headers = new Headers(init?.headers);
        headers.set('x-holdfast-session', id);
        headers.set('cookie', cookie);
        headers.set('origin', base);
        return fetch(input, { ...init, headers });
      },
    });
    return createClient(service, transport);
  }
}

/** Signs in; sign-ins are limited for an address, which a proxy of this machine may name. */
export function postSignIn(base: string, credential: Credential, address = '127.0.0.1'): Promise<Response> {
  const headers = { 'content-type': 'application/json', origin: base, 'x-forwarded-for': address };
  return fetch(`${base}/console/sign-in`, { method: 'POST', headers, body: JSON.stringify(credential) });
}
