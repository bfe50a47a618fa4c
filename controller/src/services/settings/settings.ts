/**
 * Settings that may be changed while the controller runs: each is that of its file until an administrator sets another one here, which
 * counts without a restart, by the next round of what goes by it, stays over one, and on several controllers is that of whichever acts.
 */
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { Logger } from '@virtkeep/shared/log';
import { CHANGEABLE, type ControllerConfig } from '../../config.ts';
import type { Database } from '../../store/schema.ts';

export type SettingName = keyof typeof CHANGEABLE;
export type SettingValue = number | string;

export interface Setting {
  name: SettingName;
  value: SettingValue;
  /** What the file of the controller says, or its default. */
  from_file: SettingValue;
  /** Since when it is another one; null: it is that of the file. */
  modified: string | null;
}

export const SETTING_NAMES = Object.keys(CHANGEABLE) as SettingName[];

/** A copy whose sections may be written; the original stays as the file says. */
export function withOwnSections(config: ControllerConfig): ControllerConfig {
  const { schedules, protection, notifications, keep } = config;
  return {
    ...config,
    schedules: { ...schedules },
    protection: { ...protection },
    notifications: { ...notifications },
    keep: { ...keep },
  };
}

export interface SettingDependencies {
  db: Database;
  /** Of `withOwnSections`; all who use a setting read it there when they need it. */
  config: ControllerConfig;
  log: Logger;
}

export class SettingService {
  readonly #dependencies: SettingDependencies;
  readonly #fromFile: ReadonlyMap<SettingName, SettingValue>;
  readonly #modified = new Map<SettingName, string>();
  readonly #turns = new KeyedQueue();

  constructor(dependencies: SettingDependencies) {
    this.#dependencies = dependencies;
    this.#fromFile = new Map(SETTING_NAMES.map(name => [name, read(dependencies.config, name)]));
  }

  /** Takes up what was set before. What this version does not know or allow any more is left as the file says. */
  async load(): Promise<void> {
    const { db, log } = this.#dependencies;
    for (const { name, value, modified } of await db.selectFrom('settings').selectAll().execute()) {
      try {
        if (!isSetting(name)) throw new Error('there is no such setting');
        // also of one that does not count, so that it can be taken back
        this.#modified.set(name, modified);
        this.#apply(name, checked(name, JSON.parse(value)));
        log.info('this setting is not that of the file', { name, value });
      } catch (error) {
        log.warn('a setting counts no more', { name, reason: reasonOf(error) });
      }
    }
  }

  list(): Setting[] {
    return SETTING_NAMES.map(name => this.#record(name));
  }

  /**
   * @param value null: that of the file
   * @throws VirtkeepError invalid_field
   */
  set(name: SettingName, value: SettingValue | null, now = new Date()): Promise<Setting> {
    return this.#turns.run(name, async () => {
      const { db } = this.#dependencies;
      if (value === null) {
        await db.deleteFrom('settings').where('name', '=', name).execute();
        this.#apply(name, this.#fromFile.get(name)!);
        this.#modified.delete(name);
        return this.#record(name);
      }
      const right = checked(name, value);
      const row = { value: JSON.stringify(right), modified: now.toISOString() };
      await db
        .insertInto('settings')
        .values({ name, ...row })
        .onConflict(conflict => conflict.column('name').doUpdateSet(row))
        .execute();
      this.#apply(name, right);
      this.#modified.set(name, row.modified);
      return this.#record(name);
    });
  }

  #apply(name: SettingName, value: SettingValue): void {
    const [section, key] = placeOf(name);
    sectionOf(this.#dependencies.config, section)[key] = value;
  }

  #record(name: SettingName): Setting {
    return {
      name,
      value: read(this.#dependencies.config, name),
      from_file: this.#fromFile.get(name)!,
      modified: this.#modified.get(name) ?? null,
    };
  }
}

const isSetting = (name: string): name is SettingName => Object.hasOwn(CHANGEABLE, name);
const placeOf = (name: SettingName) => name.split('.') as [string, string];

function sectionOf(config: ControllerConfig, section: string): Record<string, SettingValue> {
  return (config as unknown as Record<string, Record<string, SettingValue>>)[section]!;
}

function read(config: ControllerConfig, name: SettingName): SettingValue {
  const [section, key] = placeOf(name);
  return sectionOf(config, section)[key]!;
}

/** @throws VirtkeepError invalid_field */
function checked(name: SettingName, value: unknown): SettingValue {
  const { success, data, error } = CHANGEABLE[name].safeParse(value);
  if (success) return data;
  throw new VirtkeepError('invalid_field', {
    field: 'value',
    reason: `cannot be the setting ${name}: ${error.issues[0]!.message}`,
  });
}
