/** Definitions and files for the tests of what is decided about them. */
import type { FileRow } from '../../store/schema.ts';
import { type DefinitionInput, definitionOf, type ScheduleDefinition } from './definition.ts';

export const DUE = '2026-03-01T02:00:00Z';
export const DAY = 86_400_000;
export const NOW = Date.parse('2026-03-01T03:00:00Z');

export const definition = (more: DefinitionInput): ScheduleDefinition =>
  definitionOf({ verbose_name: 't', all: true, ...more }, undefined, {
    timeZone: 'UTC',
    now: new Date('2026-01-01T00:00:00Z'),
  });

/** A backup of the VM `vm` whose newest of several daily states is so many days old. */
export function fileRow(
  id: string,
  archive: string,
  daysOld: number,
  { states = 1, ...more }: Partial<FileRow> & { states?: number } = {},
): FileRow {
  const at = (age: number) => new Date(NOW - age * DAY).toISOString();
  return {
    id,
    pool_id: 'p1',
    path: `/${id}`,
    filename: id,
    verbose_name: id,
    description: '',
    size: 100,
    status: 'ACTIVE',
    type: 'tar',
    compressed: 0,
    can_be_incremental: 0,
    protected: 0,
    domain_id: 'vm',
    domain_name: 'vm',
    created: at(daysOld),
    record_json: JSON.stringify({
      archive_id: archive,
      states: Array.from({ length: states }, (_, index) => ({
        number: index + 1,
        name: `s${index}`,
        created: at(daysOld + states - 1 - index),
        memory: false,
        consistency: '',
      })),
    }),
    newest_point: at(daysOld),
    newest_whole_point: at(daysOld),
    modified: at(daysOld),
    ...more,
  } as FileRow;
}
