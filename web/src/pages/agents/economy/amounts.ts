// Amounts of a wallet, which are decimal numbers.

/** Whether a text is an amount; empty is 0. */
export const isAmount = (text: string) => /^(\d{1,12}(\.\d{1,6})?)?$/.test(text.trim());
