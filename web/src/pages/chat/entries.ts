// Entries of the journal, with what the page needs of their details.
import type { Entry } from '$api/gen/holdfast/gateway/v1/sessions_pb';
import type { Timestamp } from '@bufbuild/protobuf/wkt';

export type StoredFile = { path: string; media_type: string; size: number; hash: string };

export type MessageFile = { kind: string; name: string; file?: StoredFile };

export type RequestedCall = { id: string; tool: string; input: string };

type Usage = { input: number; cached: number; output: number };

/** Fields of `Entry.detail`; which of them there are depends on the kind. Nothing of it is trusted. */
export type Detail = {
  /** Of `heard`: the place of the message in the inbox, as `SendResponse.seq`. */
  seq?: number;
  author?: { id?: string };
  sender?: { id?: string; name?: string };
  reply_to?: { text?: string };
  attachments?: MessageFile[];
  /** Of an imported history: `system`, `assistant` or `tool`. */
  role?: string;
  /** Name of an event of the mesh that is no message of a person. */
  event?: string;
  fired?: object;
  heartbeat?: object;
  silent?: boolean;
  calls?: RequestedCall[];
  usage?: Usage;
  model?: string;
  /** Why the model stopped. */
  stop?: string;
  call?: string;
  failed?: boolean;
  media?: { shown?: StoredFile[]; attached?: StoredFile[] };
  note?: string;
};

export type JournalEntry = {
  seq: number;
  run: string;
  kind: string;
  text: string;
  detail: Detail;
  at: Timestamp | undefined;
};

export function parseEntry(entry: Entry): JournalEntry {
  const { seq, runId, kind, text, detail, createdAt } = entry;
  return { seq: Number(seq), run: runId, kind, text, detail: parseDetail(detail), at: createdAt };
}

function parseDetail(json: string): Detail {
  try {
    const value = JSON.parse(json) as unknown;
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
