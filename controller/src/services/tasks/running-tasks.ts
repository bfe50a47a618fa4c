/**
 * The tasks that run, in memory: each of them tells several times a second how far it is, which is shown at once and written every few
 * seconds. What is lost with the process the nodes tell anew.
 */
import type { TaskRow } from '../../store/schema.ts';
import type { TaskState } from './store.ts';

/** What users ask for is set by itself, and may be newer than a row that was read. */
type Asked = Pick<TaskRow, 'cancel_requested' | 'locks_released'>;

const askedOf = ({ cancel_requested, locks_released }: Asked): Asked => ({
  cancel_requested,
  locks_released,
});

export class RunningTasks {
  readonly #states = new Map<string, TaskState>();
  /** Those whose progress is not written yet. */
  readonly #unwritten = new Set<string>();

  find(id: string): TaskState | undefined {
    return this.#states.get(id);
  }

  /** It runs, and is written as it is here. */
  keep(state: TaskState): void {
    const { id } = state.row;
    const before = this.#states.get(id);
    this.#states.set(id, before ? { ...state, row: { ...state.row, ...askedOf(before.row) } } : state);
    this.#unwritten.delete(id);
  }

  /** It has gone on. @returns false when it is not here. */
  progressed(state: TaskState): boolean {
    const { id } = state.row;
    if (!this.#states.has(id)) return false;
    this.keep(state);
    this.#unwritten.add(id);
    return true;
  }

  /** These columns were written. */
  set(id: string, columns: Partial<TaskRow>): void {
    const state = this.#states.get(id);
    if (state) this.#states.set(id, { ...state, row: { ...state.row, ...columns } });
  }

  /** All parts of a task are to end. */
  endParts(parent: string): void {
    for (const [id, { row }] of this.#states)
      if (row.parent === parent) this.set(id, { cancel_requested: 1 });
  }

  drop(id: string): void {
    this.#states.delete(id);
    this.#unwritten.delete(id);
  }

  /** As it is now. */
  asItIs(row: TaskRow): TaskRow {
    const state = row.status === 'IN_PROGRESS' ? this.#states.get(row.id) : undefined;
    return state ? { ...row, progress: state.row.progress, detail_json: state.row.detail_json } : row;
  }

  /** Those whose progress is to be written; they count as written from now on. */
  takeUnwritten(): TaskRow[] {
    const rows = [...this.#unwritten].flatMap(id => this.#states.get(id)?.row ?? []);
    this.#unwritten.clear();
    return rows;
  }

  /** They could not be written. */
  putBack(rows: readonly TaskRow[]): void {
    for (const { id } of rows) if (this.#states.has(id)) this.#unwritten.add(id);
  }
}
