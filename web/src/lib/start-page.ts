// Whether the start page was hidden in this browser, by tenant.

const keyOf = (tenant: string) => `holdfast.start.${tenant}`;

export function isStartHidden(tenant: string): boolean {
  return localStorage.getItem(keyOf(tenant)) === 'hidden';
}

export function hideStart(tenant: string) {
  localStorage.setItem(keyOf(tenant), 'hidden');
}
