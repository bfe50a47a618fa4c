/** A VM that is given another name, which somebody may use before that is undone. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { renameDomain } from '../../../agent/src/workflows/domain/rename-domain.ts';
import type { BuildStory } from '../undo-model.ts';
import { lives, makeVm } from './vm.ts';

export const rename: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: false, efi: true });
  const { machine } = vm;
  const variablesOf = (name: string) => join(world.nvram, `${name}_VARS.fd`);
  writeFileSync(variablesOf('vm'), 'its own');
  writeFileSync(variablesOf('other'), 'of another');
  await vm.write(0, 1);
  let content = await vm.view();
  let isStarted = false;
  return {
    kind: 'rename_domain',
    points: 12,
    workflow: () => renameDomain(world.dependencies, { domainId: machine.uuid, name: 'new' }),
    async undone() {
      if (!isStarted) expect(machine.name).toBe('vm');
    },
    async safe(committed) {
      expect(committed ? ['new'] : ['vm', 'new']).toContain(machine.name);
      expect(machine.config).toContain(`<name>${machine.name}</name>`);
      expect(await vm.view()).toEqual(content);
      expect(readFileSync(variablesOf(machine.name), 'utf8')).toBe('its own');
      expect(readFileSync(variablesOf('other'), 'utf8')).toBe('of another');
    },
    async settled(committed) {
      const variables = world.files().filter(path => path.startsWith('nvram/'));
      expect(variables).toEqual([`nvram/${machine.name}_VARS.fd`, 'nvram/other_VARS.fd'].sort());
      if (committed) expect(machine.name).toBe('new');
      else if (!isStarted) expect(machine.name).toBe('vm');
    },
    async life() {
      if (random(3) > 0) return;
      isStarted = true;
      await lives(vm, world, random);
      content = await vm.view();
    },
  };
};
