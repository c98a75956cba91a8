// Before and after all tests: no mesh of theirs is left running, unless HOLDFAST_TEST_KEEP=1 keeps it for the
// next run.
import { Mesh } from './mesh';
import { clearTasks } from './tasks/table';

export default async function setup(): Promise<() => Promise<void>> {
  const isKept = process.env['HOLDFAST_TEST_KEEP'] === '1';
  if (!isKept) await Mesh.stopAll();
  clearTasks();
  return () => (isKept ? Promise.resolve() : Mesh.stopAll());
}
