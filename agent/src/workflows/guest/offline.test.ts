import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { commitOverlays, completeChange } from './offline.ts';

let dir: string;
const qemu = (program: string, ...args: string[]) => execFileSync(program, args, { encoding: 'utf8' });
const holds = (image: string, pattern: string) =>
  spawnSync('qemu-io', ['-r', '-f', 'qcow2', '-c', `read -P ${pattern} 0 64k`, image]).status === 0;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-offline-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

test('what overlays hold goes into the images, also when a first try ended in between', async () => {
  const names = ['vda', 'vdb'];
  const [images, overlays] = ['base', 'over'].map(kind =>
    names.map(name => join(dir, `${name}-${kind}.qcow2`)),
  );
  for (const [index, image] of images!.entries()) {
    qemu('qemu-img', 'create', '-q', '-f', 'qcow2', image, '1M');
    qemu('qemu-io', '-f', 'qcow2', '-c', 'write -P 1 0 64k', image);
    qemu('qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', image, overlays![index]!);
    qemu('qemu-io', '-f', 'qcow2', '-c', 'write -P 2 0 64k', overlays![index]!);
  }
  const signal = new AbortController().signal;
  // the first disk was done before the crash
  await commitOverlays(overlays!.slice(0, 1), signal);
  expect(images!.map(image => holds(image, '2'))).toEqual([true, false]);
  await commitOverlays(overlays!, signal);
  expect(images!.map(image => holds(image, '2'))).toEqual([true, true]);
  expect(overlays!.some(path => existsSync(path))).toBe(false);
  await commitOverlays(overlays!, signal);
});

test('a change that was cut off does not come over what a VM has written that was started meanwhile', async () => {
  const [image, overlay] = [join(dir, 'base.qcow2'), join(dir, 'over.qcow2')];
  const make = () => {
    qemu('qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', image, overlay);
    qemu('qemu-io', '-f', 'qcow2', '-c', 'write -P 2 0 64k', overlay);
  };
  qemu('qemu-img', 'create', '-q', '-f', 'qcow2', image, '1M');
  qemu('qemu-io', '-f', 'qcow2', '-c', 'write -P 1 0 64k', image);
  const libvirt = (active: boolean) =>
    ({ domain: () => ({ isActive: async () => active }) }) as unknown as Libvirt;
  const warnings: string[] = [];
  const options = { signal: new AbortController().signal, warn: (text: string) => void warnings.push(text) };
  const effect = { domainId: 'd', paths: [overlay] };
  make();
  await completeChange(libvirt(true), effect, options);
  expect([holds(image, '1'), existsSync(overlay), warnings.length]).toEqual([true, false, 1]);
  make();
  await completeChange(libvirt(false), effect, options);
  expect([holds(image, '2'), existsSync(overlay), warnings.length]).toEqual([true, false, 1]);
});
