import { beforeEach, expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { FileRow } from '../../store/schema.ts';
import { fileRow } from '../schedules/sample-files.ts';
import { ExtensionChooser } from './extension.ts';

const vm = Domain.fromPartial({ id: 'vm', name: 'vm' });
const view = { active: true, mounted: true };
/** Of the VM, the newest first. */
let archives: FileRow[];
let chooser: ExtensionChooser;

beforeEach(() => {
  archives = [];
  chooser = new ExtensionChooser(
    { pools: new Map([['p1', { views: new Map([['n1', view]]) }]]) } as never,
    { unused: async (id: string) => archives.find(row => row.id === id) } as never,
    { archivesOf: async () => archives } as never,
    { isWritable: () => true } as never,
  );
});

function archive(id: string, more: object = {}): FileRow {
  const row = fileRow(id, id, 0);
  return { ...row, record_json: JSON.stringify({ ...JSON.parse(row.record_json), capable: true, ...more }) };
}
const choose = (options: object) => chooser.choose({ increment: true, ...options }, vm, 'n1');

test('an increment extends the newest archive that can be extended, and one that is to make a new archive none', async () => {
  archives = [archive('grown', { grown: 'it has grown' }), archive('f')];
  expect(await choose({})).toMatchObject({ file: { id: 'f' }, fallbackReason: '' });
  expect(await choose({ newArchive: true })).toMatchObject({ file: undefined, fallbackReason: '' });
});

test('it says why it makes a new one where none can be extended', async () => {
  archives = [archive('f', { grown: 'it has grown' })];
  for (const options of [{}, { newArchive: true }])
    expect(await choose(options)).toMatchObject({
      file: undefined,
      fallbackReason: 'f cannot be extended: it has grown',
    });
});
