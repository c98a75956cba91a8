// Before and after all tests: no mesh of theirs is left running.
import { Mesh } from './mesh';
import { clearTasks } from './tasks/table';

export default async function setup(): Promise<() => Promise<void>> {
  // Left by a run that was killed.
  await Mesh.stopAll();
  clearTasks();
  return () => Mesh.stopAll();
}
