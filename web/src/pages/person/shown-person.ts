// The person whose things the tabs show.
import type { GetPersonResponse, PersonIdentity } from '$api/gen/holdfast/gateway/v1/people_pb';

export type ShownPerson = {
  /** `per_…`; empty is whoever is signed in. */
  id: string;
  /** Name in memories and reminders, such as `person:per_…`; empty is the caller's own. */
  user: string;
  /** Folder of the files in agents' workspaces; empty for an owner, and for the caller's own view of the files. */
  folder: string;
  /** Names as author of jobs and messages. */
  authors: string[];
  /** Ids whose sign-ins to the console are the person's: their own, and those of their keys. */
  holders: string[];
};

/** Whoever is signed in. */
export const SELF: ShownPerson = { id: '', user: '', folder: '', authors: [], holders: [] };

export function shownPerson(id: string, { identities, user, folder }: GetPersonResponse): ShownPerson {
  const keys = identities.filter(({ kind }) => kind === 'key').map(({ value }) => value);
  const authors = [`person:${id}`, ...identities.flatMap(authorOf)];
  return { id, user, folder, authors, holders: [id, ...keys] };
}

function authorOf({ kind, value }: PersonIdentity): string[] {
  if (kind === 'account' || kind === 'api_user') return [value];
  if (kind === 'key') return [`api:${value}`];
  return kind === 'person' ? [`person:${value}`] : [];
}
