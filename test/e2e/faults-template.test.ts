// kill -9 and other blows at each step of a clone and of a template's change: nothing is left of a clone, and a template
// with all its clones is what it was or what it was to become, never a mix.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { CHANGE_TEMPLATE_STEPS } from '../../agent/src/workflows/template/change.ts';
import { CLONE_STEPS } from '../../agent/src/workflows/template/clone.ts';
import { checkImages, diskPath, scribble, scribbled } from '../integration/templates/lab.ts';
import { Guest } from '../lab/guest.ts';
import { AgentAlone, INTERRUPTED, lostAnswer, momentsOf, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let template: Guest;
let changed: Guest;
let other: Guest;
/** What the template holds, its version, and what the next change brings. */
let world = { text: 'v0', version: 1 };
let round = 0;

const TARGETS = ['vda', 'vdb'];

beforeAll(async () => {
  alone = await AgentAlone.start();
  template = await alone.world.defineTiny({
    name: 'golden',
    dataDisks: [{ files: { hello: 'template' } }, { sizeMiB: 16 }],
    metadata: "<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' template='yes' version='1'/>",
  });
  for (const target of TARGETS) await scribble(await diskPath(template, target), world.text);
  for (const name of ['changed', 'other']) {
    const operation = await alone.ended(await clone({ name, thin: true }));
    expect(operation.error).toBeUndefined();
  }
  changed = new Guest(alone.world.node, 'changed');
  other = new Guest(alone.world.node, 'other');
});
afterAll(() => alone?.stop());

async function clone(request: { name?: string; thin: boolean }): Promise<string> {
  const operationId = newId();
  const domainId = await template.uuid();
  await alone.templates.clone({ operationId, domainId, newDomainId: newId(), ...request }).catch(lostAnswer);
  return operationId;
}

async function change(): Promise<string> {
  const operationId = newId();
  await alone.templates.change({ operationId, domainId: await changed.uuid() }).catch(lostAnswer);
  return operationId;
}

/** Writes what the next change is to bring, and something on the other clone that it is to lose. */
async function prepare(): Promise<{ next: string; mine: string }> {
  round += 1;
  const [next, mine] = [`n${round % 10}`, `m${round % 10}`];
  for (const target of TARGETS) {
    await scribble(await diskPath(changed, target), next);
    await scribble(await diskPath(other, target), mine);
  }
  return { next, mine };
}

const textsOf = async (guest: Guest) => {
  const texts = [];
  for (const target of TARGETS) texts.push(await scribbled(await diskPath(guest, target), 2));
  return texts.join();
};

/** The world as the operation's end tells it: every disk of every domain, versions, files; and a clone runs. */
async function expectWorld(
  operation: Operation,
  files: string[],
  { next, mine }: { next: string; mine: string },
): Promise<void> {
  const isNew = operation.state === OperationState.SUCCEEDED;
  if (isNew) world = { text: next, version: world.version + 1 };
  const both = (text: string) => `${text},${text}`;
  expect(await Promise.all([template, changed, other].map(textsOf))).toEqual([
    both(world.text),
    both(next),
    both(isNew ? next : mine),
  ]);
  expect(alone.files(0)).toEqual(files);
  const metadata = async (guest: Guest) => parseDomain(await guest.xml(true)).metadata;
  expect((await metadata(template)).templateVersion).toBe(world.version);
  for (const guest of [changed, other]) expect((await metadata(guest)).parent?.version).toBe(world.version);
  for (const guest of [template, changed, other])
    for (const target of TARGETS) await checkImages(await diskPath(guest, target));
  await (await other.start()).waitForAgent();
  expect(await other.sh('cat /mnt/vda/hello')).toBe('template');
  await other.destroy();
}

describe('change of a template', () => {
  test.each(momentsOf(CHANGE_TEMPLATE_STEPS, 'copy.mid', 'switch.before', 'switch.mid'))(
    'kill -9 of the agent at %s',
    async moment => {
      const files = alone.files(0);
      const texts = await prepare();
      const operation = await alone.killedAt(`change_template.${moment}`, () => change());
      const isNew = moment.startsWith('switch');
      expect(operation.state).toBe(isNew ? OperationState.SUCCEEDED : OperationState.FAILED);
      await expectWorld(operation, files, texts);
    },
  );

  test.each(['check.after', 'copy.after', 'prepare.after'])('cancel at %s', async moment => {
    const files = alone.files(0);
    const texts = await prepare();
    const operation = await alone.canceledAt(`change_template.${moment}`, () => change());
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectWorld(operation, files, texts);
  });

  test.each(['check.after', 'switch.before'])('libvirtd is killed and restarted at %s', async moment => {
    const files = alone.files(0);
    const texts = await prepare();
    const file = alone.pauseFile(`libvirtd-${moment}`);
    await alone.arm(`change_template.${moment}=pause:${file}`);
    const id = await change();
    await alone.whilePaused(file, async () => {
      if (moment.startsWith('switch'))
        await expect(alone.operations.cancel({ id })).rejects.toThrow(/cannot be cancelled/);
      await alone.world.node.killLibvirtd();
      await alone.world.node.startLibvirtd();
    });
    await expectWorld(await alone.ended(id), files, texts);
  });

  test('a clone that is started between the commit and the switch: the switch waits until it is off', async () => {
    const files = alone.files(0);
    const texts = await prepare();
    await alone.arm('change_template.switch.before=kill');
    const id = await change();
    await alone.died();
    await other.start();
    await alone.up();
    expect((await alone.operations.get({ id })).state).toBe(OperationState.RUNNING);
    await other.destroy();
    await expectWorld(await alone.ended(id), files, texts);
  });
});

describe('clone', () => {
  let before: Picture;
  const picture = () => alone.picture(template);

  describe.each([true, false])('thin: %s', thin => {
    test.each(momentsOf(CLONE_STEPS, 'copy.mid'))('kill -9 of the agent at %s', async moment => {
      before = await picture();
      const operation = await alone.killedAt(`clone_domain.${moment}`, () => clone({ thin }));
      expect(operation).toMatchObject(INTERRUPTED);
      expect(await picture()).toEqual(before);
    });

    test.each(['copy.after', 'define.after'])('cancel at %s', async moment => {
      before = await picture();
      const operation = await alone.canceledAt(`clone_domain.${moment}`, () => clone({ thin }));
      expect(operation.state).toBe(OperationState.CANCELED);
      expect(await picture()).toEqual(before);
    });
  });
});
