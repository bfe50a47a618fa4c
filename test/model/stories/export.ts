/** A restore point of an archive for other hypervisors. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { ExportBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { exportBackupWorkflow, exportTarget } from '../../../agent/src/workflows/export/export.ts';
import type { BuildStory } from '../undo-model.ts';
import { hashOfFile } from './backup.ts';
import { makeBackup } from './perform.ts';
import { isUndone, makeVm } from './vm.ts';

export const exportBackup: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: false });
  const { uuid } = vm.machine;
  await vm.write(0, 1);
  const compress = random(2) === 1;
  const { path, ref, id } = await makeBackup(world, uuid, { compress, canBeIncremental: true });
  await vm.write(1, 2);
  if (random(2) === 1) await makeBackup(world, uuid, { extend: ref, extendFileId: id });
  const former = hashOfFile(path);
  const files = world.files();
  const format = (['ova', 'ovf', 'qcow2'] as const)[random(3)]!;
  const state = random(2) === 1 ? '1' : '';
  const result = join(world.backups, format === 'ova' ? 'result.ova' : 'result');
  return {
    kind: 'export_backup',
    points: 80,
    workflow: operationId => {
      const request = ExportBackupRequest.fromPartial({
        ...{ operationId, file: ref, fileId: id, format, state, name: 'result' },
      });
      const source = { pool: world.poolRecord, path, filename: ref.filename };
      const target = exportTarget(request, source, [world.poolRecord], 'node');
      return exportBackupWorkflow(world.dependencies, request, target);
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(hashOfFile(path)).toBe(former);
    },
    async settled(committed) {
      const beside = world.files().filter(name => !files.includes(name));
      if (!committed) return expect(beside).toEqual([]);
      // of two disks
      if (format === 'ova') return expect(beside).toEqual([result.slice(world.root.length + 1)]);
      expect(readdirSync(result)).toHaveLength(format === 'ovf' ? 4 : 3);
      expect(beside).toHaveLength(readdirSync(result).length);
    },
  };
};
