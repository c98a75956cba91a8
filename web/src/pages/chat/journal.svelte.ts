// Part of a session's journal that is loaded: entries without gaps, read on at both ends.
import { sessions } from '$api/clients';
import { parseEntry, type JournalEntry } from './entries';

/** Entries of a page. */
const PAGE = 200;

/** Entries that are read at once at the end of the journal. */
const NEW_ENTRIES = 500;

/** Entries that are kept: with more of them, each page that is read would hold the browser up. */
const MAX_ENTRIES = 3000;

export class Journal {
  entries = $state.raw<JournalEntry[]>([]);
  /** Nothing is before the first entry. */
  isAtStart = $state(false);
  /** The newest entry is loaded. */
  isAtEnd = $state(true);
  isLoaded = $state(false);
  error = $state.raw<unknown>();
  /** Calls one after the other: their answers are put together with what is loaded. */
  #last: Promise<unknown> = Promise.resolve();
  #refreshWaits = false;
  /** Entry that is shown first. */
  #around: number | undefined;

  constructor(readonly session: string) {}

  get #lastSeq(): number {
    return this.entries.at(-1)?.seq ?? 0;
  }

  /** Reads the newest entries, or those around an entry. */
  open(around?: number): Promise<void> {
    this.#around = around;
    return this.#inTurn(() => this.#open());
  }

  /** Reads the page before the first entry. */
  earlier(): Promise<void> {
    return this.#inTurn(async () => {
      const first = this.entries[0];
      if (!first || this.isAtStart) return;
      const { entries } = await this.#read({ beforeSeq: BigInt(first.seq), limit: PAGE });
      const all = [...entries, ...this.entries];
      this.entries = all.slice(0, MAX_ENTRIES);
      this.isAtStart = entries.length < PAGE;
      if (all.length > MAX_ENTRIES) this.isAtEnd = false;
    });
  }

  /** Reads the page after the last entry. */
  later(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.isAtEnd) return;
      await this.#append(PAGE);
      if (this.entries.length <= MAX_ENTRIES) return;
      this.entries = this.entries.slice(-MAX_ENTRIES);
      this.isAtStart = false;
    });
  }

  /** Reads what was appended. Calls while one waits are one. */
  refresh(): Promise<void> {
    if (this.#refreshWaits) return this.#last.then(() => undefined);
    this.#refreshWaits = true;
    return this.#inTurn(async () => {
      this.#refreshWaits = false;
      if (!this.isLoaded) return this.#open();
      if (!this.isAtEnd) return;
      while ((await this.#append(NEW_ENTRIES)) === NEW_ENTRIES);
    });
  }

  async #open() {
    const around = this.#around;
    const beforeSeq = around === undefined ? 0n : BigInt(around + PAGE / 2);
    const read = await this.#read({ beforeSeq, limit: PAGE });
    this.entries = read.entries;
    this.isAtStart = read.entries.length < PAGE;
    this.isAtEnd = around === undefined || this.#lastSeq >= read.lastSeq;
    this.isLoaded = true;
  }

  async #append(limit: number): Promise<number> {
    const { entries, lastSeq } = await this.#read({ afterSeq: BigInt(this.#lastSeq), limit });
    const added = entries.filter(({ seq }) => seq > this.#lastSeq);
    if (added.length > 0) this.entries = [...this.entries, ...added];
    this.isAtEnd = this.#lastSeq >= lastSeq;
    return entries.length;
  }

  async #read(request: { beforeSeq?: bigint; afterSeq?: bigint; limit: number }) {
    const answer = await sessions.getHistory({ session: this.session, ...request });
    return { entries: answer.entries.map(parseEntry), lastSeq: Number(answer.lastSeq) };
  }

  #inTurn(read: () => Promise<void>): Promise<void> {
    const call = this.#last.then(async () => {
      try {
        await read();
        this.error = undefined;
      } catch (thrown) {
        this.error = thrown;
      }
    });
    this.#last = call;
    return call;
  }
}
