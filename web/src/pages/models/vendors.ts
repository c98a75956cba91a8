// Providers that the guided setup offers, as `holdfast setup` does.

export type Vendor = {
  /** Name of the provider, the first part of its models' names. */
  name: string;
  title: string;
  kind: string;
  /** A usual model; empty if there is none. */
  model: string;
  /** Page where keys are made; empty if there are none. */
  keys: string;
  needsKey: boolean;
  needsAddress: boolean;
};

const vendor = (name: string, title: string, kind: string, model: string, keys: string): Vendor => ({
  name,
  title,
  kind,
  model,
  keys,
  needsKey: keys !== '',
  needsAddress: false,
});

export const VENDORS: Vendor[] = [
  vendor('openai', 'OpenAI', 'openai', 'gpt-5', 'https://platform.openai.com/api-keys'),
  vendor('anthropic', 'Anthropic', 'anthropic', 'claude-sonnet-5', 'https://console.anthropic.com/settings/keys'),
  vendor('gemini', 'Google Gemini', 'gemini', 'gemini-2.5-flash', 'https://aistudio.google.com/apikey'),
  vendor('openrouter', 'OpenRouter', 'openai', 'openai/gpt-5', 'https://openrouter.ai/settings/keys'),
  vendor('ollama', 'Ollama', 'ollama', 'qwen3', ''),
  vendor('groq', 'Groq', 'openai', '', 'https://console.groq.com/keys'),
  vendor('deepseek', 'DeepSeek', 'openai', 'deepseek-flash', 'https://platform.deepseek.com'),
  vendor('mistral', 'Mistral', 'openai', '', 'https://console.mistral.ai/api-keys'),
  vendor('xai', 'xAI', 'openai', '', 'https://console.x.ai'),
  vendor('together', 'Together AI', 'openai', '', 'https://api.together.ai/settings/api-keys'),
];

/** Any other server: its name, address and API are asked. */
export const OTHER: Vendor = { name: '', title: '', kind: 'openai', model: '', keys: '', needsKey: false, needsAddress: true };

export const KINDS = ['openai', 'openai-responses', 'anthropic', 'gemini', 'ollama', 'azure', 'vertex', 'bedrock'];
