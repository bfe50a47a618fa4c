/** A VM with its disks out of an archive of Proxmox VE; the VMs of an OVA, restored, and a backup of each. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect } from '@jest/globals';
import { ConvertBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { StartApplianceRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { tar, tarMember } from '../../../agent/src/appliance/test-kit.ts';
import { someContent, vma } from '../../../agent/src/appliance/vma/test-kit.ts';
import { verifyArchive } from '../../../agent/src/archive/index.ts';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { cpus, descriptor, disk, memory, scsi, system } from '../../../agent/src/ovf/test-kit.ts';
import { applianceRestoreWorkflow } from '../../../agent/src/workflows/import/appliance-restore.ts';
import { planConvert } from '../../../agent/src/workflows/import/convert.ts';
import { convertAllWorkflow } from '../../../agent/src/workflows/import/convert-all.ts';
import { run } from '../../lab/run.ts';
import type { BuildStory } from '../undo-model.ts';
import type { World } from '../world.ts';
import { isUndone } from './vm.ts';

const RAW = 'http://example.com/raw';
const CONTENTS = [someContent(200_192), someContent(70_144, 3)];

/** An OVA of two VMs of one name, packed as a whole. */
function twins(): Buffer {
  const indices = CONTENTS.map((_, index) => index);
  const text = descriptor({
    files: indices.map(index => `<File ovf:id="f${index}" ovf:href="d${index}.img"/>`).join(''),
    disks: indices
      .map(
        index =>
          `<Disk ovf:diskId="d${index}" ovf:fileRef="f${index}" ovf:capacity="${CONTENTS[index]!.length}" ovf:format="${RAW}"/>`,
      )
      .join(''),
    content: `<VirtualSystemCollection ovf:id="all"><Info/>${indices
      .map(index => {
        const items = cpus(1) + memory(256) + scsi(3, 'VirtualSCSI') + disk(4, 3, 0, `ovf:/disk/d${index}`);
        return system({ id: `vm${index}`, name: 'vm', items });
      })
      .join('')}</VirtualSystemCollection>`,
  });
  const members = CONTENTS.map((content, index) => tarMember(`d${index}.img`, content));
  return gzipSync(tar(tarMember('vm.ovf', Buffer.from(text)), ...members));
}

function proxmox(): Buffer {
  const [first, second] = CONTENTS;
  const devices = { 'drive-scsi0': first!, 'drive-ide1': second! };
  return vma({ configs: { 'qemu-server.conf': 'name: vm\nscsi0: a:b\nide1: c:d\n' }, devices });
}

function put(world: World, filename: string, bytes: Buffer) {
  mkdirSync(world.backups, { recursive: true });
  const path = join(world.backups, filename);
  writeFileSync(path, bytes);
  return { pool: world.poolRecord, path, filename };
}

async function contentOf(world: World, path: string): Promise<Buffer> {
  const raw = join(world.root, 'read.raw');
  await run(['/usr/bin/qemu-img', 'convert', '-U', '-O', 'raw', path, raw]);
  const bytes = readFileSync(raw);
  await run(['rm', raw]);
  return bytes;
}

export const applianceRestore: BuildStory = async (world, random) => {
  const all = random(2) === 1;
  const bytes = all ? twins() : proxmox();
  const source = put(world, all ? 'vm.ova' : 'vm.vma', bytes);
  const files = world.files();
  const startOn = random(2) === 1;
  const domainId = newId();
  const made = () => [...world.scripted.machines.values()];
  return {
    kind: 'appliance_restore',
    points: 60,
    workflow: operationId => {
      const file = { poolId: source.pool.id, filename: source.filename };
      const request = StartApplianceRestoreRequest.fromPartial({
        ...{ operationId, file, fileId: newId(), domainId, startOn, all },
      });
      const plan = planConvert(request, source, [source.pool], 'node');
      return applianceRestoreWorkflow(world.dependencies, request, plan);
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(readFileSync(source.path).equals(bytes)).toBe(true);
    },
    async settled(committed) {
      expect(made()).toHaveLength(committed ? (all ? 2 : 1) : 0);
      if (!committed) return expect(world.files()).toEqual(files);
      expect(world.files()).toHaveLength(files.length + CONTENTS.length);
      expect(world.scripted.machines.has(domainId)).toBe(true);
      const paths = made().flatMap(({ config }) =>
        parseDomain(config!).disks.map(({ source: path }) => path),
      );
      for (const [index, path] of paths.entries()) {
        const content = CONTENTS[index]!;
        expect((await contentOf(world, path)).subarray(0, content.length).equals(content)).toBe(true);
      }
      expect(made().every(({ live }) => (live !== null) === startOn)).toBe(true);
    },
  };
};

export const convertAll: BuildStory = async (world, random) => {
  const bytes = twins();
  const source = put(world, 'vm.ova', bytes);
  const files = world.files();
  const compress = random(2) === 1;
  return {
    kind: 'convert_all',
    points: 80,
    workflow: operationId => {
      const file = { poolId: source.pool.id, filename: source.filename };
      const request = ConvertBackupRequest.fromPartial({
        ...{ operationId, file, fileId: newId(), compress, all: true },
      });
      const plan = planConvert(request, source, [source.pool], 'node');
      return convertAllWorkflow(world.dependencies, request, plan);
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(readFileSync(source.path).equals(bytes)).toBe(true);
    },
    async settled(committed) {
      const made = readdirSync(world.backups).filter(name => name !== source.filename);
      expect(made).toHaveLength(committed ? 2 : 0);
      expect(world.files()).toHaveLength(files.length + made.length);
      for (const name of made) {
        const signal = AbortSignal.timeout(60_000);
        expect(await verifyArchive(join(world.backups, name), { signal })).toMatchObject({ problems: [] });
      }
    },
  };
};
