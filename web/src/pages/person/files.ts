// Files as a person sees them: their own, and those that all people see.

/** Folders that all people see and only operators and owners change. */
const COMMON_FOLDERS = ['shared', 'skills', 'memory'];

/** Files that define an agent. */
const INSTRUCTION_FILES = ['role.md', 'self.md', 'SOUL.md', 'IDENTITY.md', 'USER.md', 'AGENTS.md', 'TOOLS.md', 'HEARTBEAT.md', 'MEMORY.md', 'BOOTSTRAP.md'];

/** Largest file that can be uploaded, in bytes. */
export const MAX_UPLOAD_BYTES = 4 << 20;

/** Whether all people see the file of this path, as `crates/agent/src/file_view.rs` has it. */
export function isCommon(path: string): boolean {
  const first = path.split('/')[0] ?? '';
  return COMMON_FOLDERS.includes(first) || INSTRUCTION_FILES.includes(first);
}
