// Excerpts of messages with the words that were searched for.
import type { MessageHit } from '$api/gen/holdfast/gateway/v1/sessions_pb';

export type Part = { text: string; isMarked: boolean };

/** The parts of an excerpt. Places of hits count Unicode characters, not UTF-16 units. */
export function markedParts({ excerpt, hits }: Pick<MessageHit, 'excerpt' | 'hits'>): Part[] {
  const characters = [...excerpt];
  const parts: Part[] = [];
  let end = 0;
  for (const { start, length } of hits) {
    if (start < end) continue;
    parts.push({ text: characters.slice(end, start).join(''), isMarked: false });
    end = start + length;
    parts.push({ text: characters.slice(start, end).join(''), isMarked: true });
  }
  parts.push({ text: characters.slice(end).join(''), isMarked: false });
  return parts.filter(({ text }) => text !== '');
}
