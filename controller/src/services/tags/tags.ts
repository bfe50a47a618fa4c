/**
 * Tags: names that people give to VMs, nodes, data pools, disks and backup files. They are the controller's own, and few, so they are held in
 * memory beside the database. What bears a tag keeps it while it is away: a VM that comes back under its id has its tags again. What was
 * removed through us has none any more: ids of disks and files follow from where they lie, so something else may have them later.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { isUuid, newId } from '@virtkeep/shared/ids';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { shareLoop } from '@virtkeep/shared/turns';
import type { Database, TagEntityRow, TagRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { BorneTag, TagRecord } from './record.ts';

export interface TagFields {
  verbose_name: string;
  description?: string;
  /** For people: any colour name that their client knows. */
  colour?: string;
}

/** More would not be read by anybody, and all are held in memory. */
const MAX_TAGS = 1000;
const MAX_BEARERS = 100_000;
const ONE_AT_A_TIME = 'tags';

export interface TagServiceDependencies {
  db: Database;
  inventory: Inventory;
  backupFiles: BackupFiles;
  /** Called for each thing whose tags in its record have changed. */
  tell: (entityClass: string, entityId: string) => void;
}

export class TagService {
  readonly #db: Database;
  readonly #inventory: Inventory;
  readonly #backupFiles: BackupFiles;
  readonly #tell: TagServiceDependencies['tell'];
  readonly #tags = new Map<string, TagRow>();
  /** Who bears a tag, with their class, by the tag's id. */
  readonly #bearers = new Map<string, Map<string, string>>();
  /** The same the other way round, since lists ask for each of their things: ids of tags by who bears them. */
  readonly #borne = new Map<string, Set<string>>();
  readonly #turns = new KeyedQueue();

  constructor({ db, inventory, backupFiles, tell }: TagServiceDependencies) {
    this.#db = db;
    this.#inventory = inventory;
    this.#backupFiles = backupFiles;
    this.#tell = tell;
  }

  /** Reads what was known before the restart. A file that is not known has been forgotten. */
  async load(): Promise<void> {
    await this.#db
      .deleteFrom('tag_entities')
      .where('entity_class', '=', 'file')
      .where(({ not, exists, selectFrom }) =>
        not(exists(selectFrom('files').select('id').whereRef('files.id', '=', 'tag_entities.entity_id'))),
      )
      .execute();
    for (const row of await this.#db.selectFrom('tags').selectAll().execute()) this.#keep(row);
    for (const { tag_id, entity_id, entity_class } of await this.#db
      .selectFrom('tag_entities')
      .selectAll()
      .execute())
      this.#bear(tag_id, entity_id, entity_class);
  }

  list(): TagRecord[] {
    return [...this.#tags.values()].map(row => this.#record(row));
  }

  /** @throws tag_not_found. */
  get(id: string): TagRecord {
    return this.#record(this.#row(id));
  }

  isKnown(id: string): boolean {
    return this.#tags.has(id);
  }

  /** Tags of a thing, by name. */
  of(entityId: string): TagRecord[] {
    return this.#rowsOf(entityId).map(row => this.#record(row));
  }

  /** The same as the thing's own record tells them. */
  borneBy(entityId: string): BorneTag[] {
    return this.#rowsOf(entityId).map(({ id, verbose_name, colour }) => ({ id, verbose_name, colour }));
  }

  #rowsOf(entityId: string): TagRow[] {
    return [...(this.#borne.get(entityId) ?? [])]
      .map(id => this.#row(id))
      .sort((a, b) => a.verbose_name.localeCompare(b.verbose_name, 'en'));
  }

  /** Whether a thing bears the tag; with no tag asked for everything does. */
  has(entityId: string, tagId: string | undefined): boolean {
    return tagId === undefined || (this.#bearers.get(tagId)?.has(entityId) ?? false);
  }

  /** Ids of all that bear a tag; undefined when none is asked for. */
  bearersOf(tagId: string | undefined): Iterable<string> | undefined {
    return tagId === undefined ? undefined : (this.#bearers.get(tagId)?.keys() ?? []);
  }

  /** @throws name_taken, too_many_tags. */
  create(fields: TagFields): Promise<TagRecord> {
    return this.#turns.run(ONE_AT_A_TIME, () => this.#create(fields));
  }

  /** @throws tag_not_found, name_taken. */
  update(id: string, fields: Partial<TagFields>): Promise<TagRecord> {
    return this.#turns.run(ONE_AT_A_TIME, async () => {
      const before = this.#row(id);
      const { verbose_name = before.verbose_name, description = before.description } = fields;
      const { colour = before.colour } = fields;
      this.#requireFreeName(verbose_name, id);
      const columns = { verbose_name, description, colour, modified: new Date().toISOString() };
      await this.#db.updateTable('tags').set(columns).where('id', '=', id).execute();
      this.#keep({ ...before, ...columns });
      await this.#tellOf(this.#bearers.get(id));
      return this.get(id);
    });
  }

  /** @throws tag_not_found. */
  remove(id: string): Promise<void> {
    return this.#turns.run(ONE_AT_A_TIME, async () => {
      this.#row(id);
      await this.#db.deleteFrom('tags').where('id', '=', id).execute();
      const bearers = this.#bearers.get(id);
      for (const entityId of bearers?.keys() ?? []) this.#letGo(id, entityId);
      this.#tags.delete(id);
      this.#bearers.delete(id);
      await this.#tellOf(bearers);
    });
  }

  /** @throws tag_not_found; entity_not_found, and nothing is tagged then; too_many_tags. */
  add(id: string, entityIds: readonly string[]): Promise<TagRecord> {
    return this.#turns.run(ONE_AT_A_TIME, async () => {
      this.#row(id);
      const classes = await this.#classesOf(entityIds);
      const rows = [...classes].map(([entity_id, entity_class]) => ({ tag_id: id, entity_id, entity_class }));
      await this.#tellOf(await this.#put(rows));
      return this.get(id);
    });
  }

  /** What does not bear it is passed over. @throws tag_not_found. */
  takeAway(id: string, entityIds: readonly string[]): Promise<TagRecord> {
    return this.#turns.run(ONE_AT_A_TIME, async () => {
      this.#row(id);
      await this.#tellOf(await this.#drop(id, entityIds));
      return this.get(id);
    });
  }

  /** These things were removed, or forgotten: they have no tags any more. */
  forget(entityIds: readonly string[]): Promise<void> {
    return this.#turns.run(ONE_AT_A_TIME, async () => {
      for (const entityId of entityIds)
        for (const tagId of [...(this.#borne.get(entityId) ?? [])]) await this.#drop(tagId, [entityId]);
    });
  }

  /** @param idsOrNames ids or names. @throws tag_not_found for the id of none. */
  assertKnown(idsOrNames: readonly string[]): void {
    for (const text of idsOrNames) if (isUuid(text) && !this.#find(text)) this.#row(text);
  }

  /**
   * Gives a thing these tags and no others.
   * @param idsOrNames ids or names; a name that no tag has makes one, an id never does
   * @throws tag_not_found, and nothing is changed then; entity_not_found; too_many_tags.
   */
  set(entityId: string, idsOrNames: readonly string[]): Promise<void> {
    return this.#turns.run(ONE_AT_A_TIME, async () => {
      this.assertKnown(idsOrNames);
      const [[, entity_class]] = [...(await this.#classesOf([entityId]))] as [[string, string]];
      const ids = new Set<string>();
      for (const text of idsOrNames) ids.add(await this.#idOf(text));
      const former = this.#rowsOf(entityId).filter(({ id }) => !ids.has(id));
      for (const { id } of former) await this.#drop(id, [entityId]);
      const added = await this.#put([...ids].map(tag_id => ({ tag_id, entity_id: entityId, entity_class })));
      if (former.length > 0 || added.size > 0) this.#tell(entity_class, entityId);
    });
  }

  async #create({ verbose_name, description = '', colour = '' }: TagFields): Promise<TagRecord> {
    this.#requireFreeName(verbose_name);
    if (this.#tags.size >= MAX_TAGS) throw new VirtkeepError('too_many_tags', { limit: MAX_TAGS });
    const now = new Date().toISOString();
    const row: TagRow = { id: newId(), verbose_name, description, colour, created: now, modified: now };
    await this.#db.insertInto('tags').values(row).execute();
    this.#keep(row);
    return this.#record(row);
  }

  async #idOf(text: string): Promise<string> {
    return this.#find(text)?.id ?? (await this.#create({ verbose_name: text })).id;
  }

  #find(idOrName: string): TagRow | undefined {
    return this.#tags.get(idOrName) ?? this.#byName(idOrName);
  }

  #requireFreeName(name: string, ownId?: string): void {
    const holder = this.#byName(name);
    if (holder !== undefined && holder.id !== ownId)
      throw new VirtkeepError('name_taken', { name, field: 'verbose_name' });
  }

  #byName(name: string): TagRow | undefined {
    return [...this.#tags.values()].find(({ verbose_name }) => verbose_name === name);
  }

  /** @returns who did not bear them before, with their class. */
  async #put(rows: TagEntityRow[]): Promise<Map<string, string>> {
    const fresh = rows.filter(({ tag_id, entity_id }) => !this.has(entity_id, tag_id));
    if (fresh.length === 0) return new Map();
    const borne = [...this.#bearers.values()].reduce((sum, bearers) => sum + bearers.size, 0);
    if (borne + fresh.length > MAX_BEARERS) throw new VirtkeepError('too_many_tags', { limit: MAX_BEARERS });
    await this.#db.insertInto('tag_entities').values(fresh).execute();
    for (const { tag_id, entity_id, entity_class } of fresh) this.#bear(tag_id, entity_id, entity_class);
    return new Map(fresh.map(({ entity_id, entity_class }) => [entity_id, entity_class]));
  }

  /** @returns who bore it, with their class. */
  async #drop(id: string, entityIds: readonly string[]): Promise<Map<string, string>> {
    const bearers = this.#bearers.get(id);
    const bore = new Map<string, string>();
    for (const entityId of entityIds) {
      const entityClass = bearers?.get(entityId);
      if (entityClass !== undefined) bore.set(entityId, entityClass);
    }
    if (bore.size === 0) return bore;
    await this.#db
      .deleteFrom('tag_entities')
      .where('tag_id', '=', id)
      .where('entity_id', 'in', [...bore.keys()])
      .execute();
    for (const entityId of bore.keys()) {
      bearers?.delete(entityId);
      this.#letGo(id, entityId);
    }
    return bore;
  }

  /** Many may bear a tag that changes, and each is rendered for everybody who listens. */
  async #tellOf(bearers: ReadonlyMap<string, string> = new Map()): Promise<void> {
    for (const [entityId, entityClass] of [...bearers]) {
      this.#tell(entityClass, entityId);
      await shareLoop();
    }
  }

  #bear(tagId: string, entityId: string, entityClass: string): void {
    this.#bearers.get(tagId)?.set(entityId, entityClass);
    this.#borne.set(entityId, (this.#borne.get(entityId) ?? new Set()).add(tagId));
  }

  #letGo(tagId: string, entityId: string): void {
    const tags = this.#borne.get(entityId);
    tags?.delete(tagId);
    if (tags?.size === 0) this.#borne.delete(entityId);
  }

  async #classesOf(ids: readonly string[]): Promise<Map<string, string>> {
    const classes = new Map<string, string>();
    for (const id of ids) classes.set(id, await this.#classOf(id));
    return classes;
  }

  /** @throws entity_not_found. */
  async #classOf(id: string): Promise<string> {
    const { domains, nodes, pools } = this.#inventory;
    if (domains.has(id)) return 'domain';
    if (nodes.has(id)) return 'node';
    if (pools.has(id)) return 'data_pool';
    if (domains.withDisk(id).size > 0) return 'vdisk';
    try {
      await this.#backupFiles.get(id);
      return 'file';
    } catch (error) {
      if (hasKey(error, 'file_not_found')) throw new VirtkeepError('entity_not_found', { id });
      throw error;
    }
  }

  #keep(row: TagRow): void {
    this.#tags.set(row.id, row);
    if (!this.#bearers.has(row.id)) this.#bearers.set(row.id, new Map());
  }

  #row(id: string): TagRow {
    const row = this.#tags.get(id);
    if (row === undefined) throw new VirtkeepError('tag_not_found', { id });
    return row;
  }

  #record(row: TagRow): TagRecord {
    const entities = [...(this.#bearers.get(row.id) ?? [])].map(([entity_uuid, entity_class]) => ({
      entity_uuid,
      entity_class,
    }));
    return { ...row, entities, entities_count: entities.length };
  }
}
