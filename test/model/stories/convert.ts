/** A backup out of an archive of Proxmox VE. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { expect } from '@jest/globals';
import { ConvertBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { someContent, vma } from '../../../agent/src/appliance/vma/test-kit.ts';
import { verifyArchive } from '../../../agent/src/archive/index.ts';
import { convertBackupWorkflow, planConvert } from '../../../agent/src/workflows/import/convert.ts';
import type { BuildStory } from '../undo-model.ts';
import { isUndone } from './vm.ts';

export const convertForeign: BuildStory = async (world, random) => {
  const devices = { 'drive-scsi0': someContent(400_384), 'drive-ide1': someContent(70_144, 3) };
  const text = 'name: vm\nscsi0: a:b\nide1: c:d\n';
  const archive = vma({ configs: { 'qemu-server.conf': text }, devices });
  const filename = 'x.vma.zst';
  mkdirSync(world.backups, { recursive: true });
  const path = join(world.backups, filename);
  const bytes = zstdCompressSync(archive);
  writeFileSync(path, bytes);
  const files = world.files();
  const compress = random(2) === 1;
  const file = { poolId: world.poolRecord.id, filename };
  return {
    kind: 'convert_backup',
    points: 40,
    workflow: operationId => {
      const request = ConvertBackupRequest.fromPartial({ operationId, file, fileId: newId(), compress });
      const source = { pool: world.poolRecord, path, filename };
      const plan = planConvert(request, source, [world.poolRecord], 'node');
      return convertBackupWorkflow(world.dependencies, request, plan);
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(readFileSync(path).equals(bytes)).toBe(true);
    },
    async settled(committed) {
      const made = readdirSync(world.backups).filter(name => name !== filename);
      expect(made).toHaveLength(committed ? 1 : 0);
      expect(world.files()).toHaveLength(files.length + made.length);
      for (const name of made) {
        const signal = AbortSignal.timeout(60_000);
        expect(await verifyArchive(join(world.backups, name), { signal })).toMatchObject({ problems: [] });
      }
    },
  };
};
