import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { guestXml } from './domain-xml.ts';
import { defineGuest, type Guest } from './guest.ts';
import type { LabNode } from './node.ts';

/** The last bytes of a ROM, where a processor begins: no interrupts, the timer stopped, halt for ever. */
const HALT = [0xfa, 0xb0, 0x30, 0xe6, 0x43, 0xf4, 0xeb, 0xfd];
const ROM_BYTES = 64 * 1024;
const RESET_VECTOR = ROM_BYTES - 16;

/** Firmware that does nothing: 100 guests with it take 1 % of a processor together. Written below `dir`. */
export function haltingRom(dir: string): string {
  const path = join(dir, 'halt.rom');
  const bytes = Buffer.alloc(ROM_BYTES, 0xff);
  bytes.set(HALT, RESET_VECTOR);
  writeFileSync(path, bytes);
  return path;
}

/**
 * Defines a guest that runs and does nothing, of the least memory and without disks; all it has is an agent that is a script
 * (fake-agent.ts). It is off until `start`.
 */
export function defineIdleGuest(
  node: LabNode,
  { name, rom, agent }: { name: string; rom: string; agent: string },
): Promise<Guest> {
  return defineGuest(node, name, guestXml({ name, boot: { rom }, agent, memoryMiB: 32 }));
}
