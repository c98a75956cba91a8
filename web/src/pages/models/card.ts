// What the catalogue says of a model, as docs/models.md has it.

export type Card = {
  context?: number;
  max_output?: number;
  tools?: boolean;
  images?: boolean;
  thinking?: { by?: string };
  /** Thousandths of a US dollar for a million tokens. */
  prices?: { input?: number; cached?: number; output?: number };
};

export type CardForm = { context: string; maxOutput: string; tools: boolean; images: boolean; input: string; cached: string; output: string };

export function cardOf(text: string): Card {
  try {
    return JSON.parse(text || '{}') as Card;
  } catch {
    return {};
  }
}

const dollars = (price: number | undefined) => (price === undefined ? '' : String(price / 1000));

export function cardForm(card: Card): CardForm {
  const { input, cached, output } = card.prices ?? {};
  return {
    context: card.context === undefined ? '' : String(card.context),
    maxOutput: card.max_output === undefined ? '' : String(card.max_output),
    tools: card.tools ?? true,
    images: card.images ?? false,
    input: dollars(input),
    cached: dollars(cached),
    output: dollars(output),
  };
}

/** JSON of a card; what the form does not know is kept from `before`. */
export function cardJson(form: CardForm, before: Card): string {
  const price = (text: string) => (text.trim() === '' ? undefined : Math.round(Number(text) * 1000));
  const [input, cached, output] = [price(form.input), price(form.cached), price(form.output)];
  const whole = (text: string) => (text.trim() === '' ? undefined : Math.round(Number(text)));
  const hasPrices = input !== undefined || cached !== undefined || output !== undefined;
  const prices = hasPrices ? { ...before.prices, input, cached, output } : undefined;
  return JSON.stringify({ ...before, context: whole(form.context), max_output: whole(form.maxOutput), tools: form.tools, images: form.images, prices });
}
