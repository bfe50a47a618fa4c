// kill -9 and other blows at each step of a template's change: the template with all its clones is what it was or what it was to
// become, never a mix. Their disks are read from outside; after each kind of end a clone is started besides.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { CHANGE_TEMPLATE_STEPS } from '../../agent/src/workflows/template/change.ts';
import { fileInside } from '../integration/archives/archive-tools.ts';
import { checkImages, scribble, scribbled } from '../integration/templates/lab.ts';
import { Guest } from '../lab/guest.ts';
import { AgentAlone, lostAnswer, momentsOf } from './agent-alone.ts';
import { defineTemplate, startClone } from './faults-template-lab.ts';

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
  template = await defineTemplate(alone);
  for (const path of await pathsOf(template)) await scribble(path, world.text);
  for (const name of ['changed', 'other']) {
    const operation = await alone.ended(await startClone(alone, template, { name, thin: true }));
    expect(operation.error).toBeUndefined();
  }
  changed = new Guest(alone.world.node, 'changed');
  other = new Guest(alone.world.node, 'other');
});
afterAll(() => alone?.stop());

const pathsOf = async (guest: Guest): Promise<string[]> => {
  const disks = await guest.disks();
  return TARGETS.map(target => disks[target]!);
};

async function change(): Promise<string> {
  const operationId = newId();
  await alone.templates.change({ operationId, domainId: await changed.uuid() }).catch(lostAnswer);
  return operationId;
}

/** Writes what the next change is to bring, and something on the other clone that it is to lose. */
async function prepare(): Promise<{ next: string; mine: string }> {
  round += 1;
  const [next, mine] = [`n${round % 10}`, `m${round % 10}`];
  for (const path of await pathsOf(changed)) await scribble(path, next);
  for (const path of await pathsOf(other)) await scribble(path, mine);
  return { next, mine };
}

const textsOf = async (paths: string[]) => {
  const texts = [];
  for (const path of paths) texts.push(await scribbled(path, 2));
  return texts.join();
};

/** The kinds of ends after which a clone was started. */
const booted = new Set<OperationState>();

/** The world as the operation's end tells it: every disk of every domain, versions, files. */
async function expectWorld(
  operation: Operation,
  files: string[],
  { next, mine }: { next: string; mine: string },
): Promise<void> {
  const isNew = operation.state === OperationState.SUCCEEDED;
  if (isNew) world = { text: next, version: world.version + 1 };
  const both = (text: string) => `${text},${text}`;
  const disks = await Promise.all([template, changed, other].map(pathsOf));
  expect(await Promise.all(disks.map(textsOf))).toEqual([
    both(world.text),
    both(next),
    both(isNew ? next : mine),
  ]);
  expect(alone.files(0)).toEqual(files);
  const metadata = async (guest: Guest) => parseDomain(await guest.xml(true)).metadata;
  expect((await metadata(template)).templateVersion).toBe(world.version);
  for (const guest of [changed, other]) expect((await metadata(guest)).parent?.version).toBe(world.version);
  await checkImages(...disks.flat());
  expect(await fileInside(disks[2]![0]!, 'hello')).toBe('template');
  if (booted.has(operation.state)) return;
  booted.add(operation.state);
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
