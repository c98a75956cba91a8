// The part of bindings and rules that says which agent answers, as a form has it.
import type { ModelRoute } from '$api/gen/holdfast/gateway/v1/control_pb';
import { namesOf } from './routing';

export type Answerer = { agent: string; byModel: boolean; among: string; each: string; model: string };

export function answererForm(agent = '', route?: ModelRoute): Answerer {
  return { agent, byModel: !!route, among: route?.among.join(', ') ?? '', each: route?.each || 'message', model: route?.model ?? '' };
}

export function routeOf(form: Answerer): { among: string[]; each: string; model: string } | undefined {
  return form.byModel ? { among: namesOf(form.among), each: form.each, model: form.model.trim() } : undefined;
}
