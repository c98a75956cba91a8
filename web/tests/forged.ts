// Calls of the API as somebody else would send them, outside of a browser.
import { create, toBinary } from '@bufbuild/protobuf';
import { expect, type BrowserContext, type Page } from '@playwright/test';
import { CreateAgentRequestSchema } from '../src/api/gen/holdfast/gateway/v1/control_pb';
import type { Mesh } from './mesh';

export const CREATE_AGENT = '/console/api/holdfast.gateway.v1.Agents/CreateAgent';
export const GET_CALLER = '/console/api/holdfast.gateway.v1.People/GetCaller';

/** States of a call that did not get in. */
export const REFUSED = /^(grpc (7|16)|http (400|401|403|415))$/;

/** Body of a gRPC-web call that creates an agent. */
export function createAgent(name: string): Buffer<ArrayBuffer> {
  const message = toBinary(CreateAgentRequestSchema, create(CreateAgentRequestSchema, { agent: { name } }));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Id of the sign-in of a page, and its cookie as a header. */
export async function stolen(page: Page, context: BrowserContext): Promise<{ id: string; cookie: string }> {
  const id = await page.evaluate(() => sessionStorage.getItem('holdfast.session')!);
  const cookies = await context.cookies();
  const own = cookies.find(({ name }) => name.includes(id));
  expect(own, 'a cookie with the id of the sign-in').toBeTruthy();
  return { id, cookie: `${own!.name}=${own!.value}` };
}

/** State of a gRPC-web call: that of gRPC, or of HTTP where the call did not get so far. */
export async function statusOf(mesh: Mesh, path: string, headers: Record<string, string>, body = Buffer.alloc(5)): Promise<string> {
  const answer = await fetch(mesh.url + path, { method: 'POST', body, headers: { 'content-type': 'application/grpc-web+proto', ...headers } });
  const text = Buffer.from(await answer.arrayBuffer()).toString('latin1');
  const grpc = answer.headers.get('grpc-status') ?? text.match(/grpc-status:\s*(\d+)/)?.[1];
  return answer.ok && grpc ? `grpc ${grpc}` : `http ${answer.status}`;
}
