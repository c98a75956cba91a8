// Routes of the console: each is tested for accessibility, hostile contents, roles, and in pictures.
import type { Role } from './mesh';

/** A permission of docs/people-and-roles.md. */
type Right = 'read' | 'chat' | 'platform';

export type Route = {
  /** Name of its pictures. */
  name: string;
  /** Below /console. */
  path: string;
  /** What the page needs; without it a person is told so. */
  right: Right;
};

/** Pages without anything chosen. */
export const PAGES: Route[] = [
  { name: 'chat', path: '/chat', right: 'chat' },
  { name: 'inbox', path: '/inbox', right: 'read' },
  { name: 'now', path: '/now', right: 'read' },
  { name: 'runs', path: '/runs', right: 'read' },
  { name: 'agents', path: '/agents', right: 'read' },
  { name: 'schedules', path: '/schedules', right: 'read' },
  { name: 'channels', path: '/channels', right: 'read' },
  { name: 'memory', path: '/memory', right: 'read' },
  { name: 'skills', path: '/skills', right: 'read' },
  { name: 'models', path: '/models', right: 'read' },
  { name: 'usage', path: '/usage', right: 'read' },
  { name: 'mesh', path: '/mesh', right: 'platform' },
  { name: 'settings', path: '/settings', right: 'read' },
];

const RIGHTS: Record<Role, Right[]> = {
  viewer: ['read'],
  member: ['read', 'chat'],
  approver: ['read', 'chat'],
  owner: ['read', 'chat'],
  platform: ['read', 'chat', 'platform'],
};

export function may(role: Role, { right }: Route): boolean {
  return RIGHTS[role].includes(right);
}
