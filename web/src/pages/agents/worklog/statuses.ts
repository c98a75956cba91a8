// Colours of what records, tasks and entries came to.

const KINDS = { OK: 'ok', FAILED: 'bad', PENDING: 'info' } as const;

export const statusKind = (status: string) => KINDS[status.toUpperCase() as keyof typeof KINDS] ?? 'quiet';
