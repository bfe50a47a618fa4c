import { describe, expect, test } from '@jest/globals';
import { definition, fileRow, NOW } from './sample-files.ts';
import type { OpenPart } from './steps/step.ts';
import { surroundingsOf } from './surroundings.ts';
import { ScheduleWorld } from './test-kit.ts';

describe('the space step', () => {
  const GB = 1e9;
  const pool = (nodes: Record<string, number>) => ({
    row: { id: 'p1' },
    views: new Map(
      Object.entries(nodes).map(([id, available]) => [
        id,
        { active: true, mounted: true, available: BigInt(available), isBase: true },
      ]),
    ),
  });

  async function surroundings(pools: Map<string, unknown>, nextOf: object | undefined) {
    const world = await ScheduleWorld.open('2026-03-01T00:00:00Z');
    const disks = [{ usedSize: BigInt(100 * GB) }];
    const domain = { id: 'vm', name: 'vm', disks, savedStates: [] };
    const asked: number[] = [];
    const inventory = {
      domains: new Map([['vm', { domain, nodeId: 'n1' }]]),
      nodes: new Map(),
      pools,
      basePool: () => 'p1',
    };
    const made = surroundingsOf({
      db: world.disk,
      store: world.store,
      clock: { now: () => new Date(NOW) },
      inventory,
      isReady: (id: string) => id === 'n1',
      keptFiles: {
        nextOf: async () => nextOf,
        nextOfTask: async () => nextOf,
        spaceVerdicts: async (_pool: string, missing: number) => {
          asked.push(missing);
          return [];
        },
      },
    } as never);
    return { world, made, asked };
  }

  const partOf = (more: object, estimate: number): OpenPart =>
    ({
      row: {
        run_id: 'r',
        position: 0,
        entity_id: 'vm',
        entity_class: 'domain',
        subject: null,
        pool_id: 'p1',
        estimate,
      },
      run: { due_time: '2026-03-01T02:00:00.000Z', created: '2026-03-01T02:00:00.000Z' },
      definition: definition({ free_space_cleanup: true, ...more }),
    }) as unknown as OpenPart;

  test('believes no node that is away of how much is free: nothing is deleted for it', async () => {
    // n2 was switched off a year ago, when the shared pool was full; n1, which makes the backup, sees 5 TB free now
    const { world, made, asked } = await surroundings(
      new Map([['p1', pool({ n1: 5000 * GB, n2: 0 })]]),
      undefined,
    );
    const [, space] = made.steps.backup.find(([name]) => name === 'space')!;
    await space.plan(partOf({}, 100 * GB));
    await world.close();
    expect(asked).toEqual([]);
  });

  test('makes space for the full backup that the weekday asks for, and not for an increment', async () => {
    const file = fileRow('archive', 'archive', 1, { states: 3 });
    const { world, made } = await surroundings(new Map([['p1', pool({ n1: 10 * GB })]]), file);
    const part = partOf({ options: { increment: true }, full_weekdays: ['sun'] }, 0);
    const { mode } = await made.decide(part);
    const { estimate } = await made.place(part);
    await world.close();
    expect({ mode, estimate }).toEqual({ mode: 'full', estimate: 100 * GB });
  });

  test('looks at the pool that the increment goes to', async () => {
    const file = fileRow('archive', 'archive', 1, { pool_id: 'p2', states: 3 });
    const { world, made } = await surroundings(new Map([['p1', pool({ n1: 10 * GB })]]), file);
    const part = partOf({ options: { increment: true } }, 0);
    const { poolId } = await made.place(part);
    await world.close();
    expect(poolId).toBe('p2');
  });
});
