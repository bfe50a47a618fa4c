/** The main job by a client whose types are strict: every answer is held against them. */

import type { Job } from './honest-agent.ts';
import {
  byKey,
  integer,
  type Kind,
  listed,
  type Of,
  object,
  orNull,
  page,
  text,
  time,
  truth,
  uuid,
} from './kinds.ts';

const named = object({ id: uuid, verbose_name: text });
const permissions = listed(text);
const borneTag = object({ verbose_name: text, colour: text });

const user = object({ id: integer, username: text, role: text, enabled: truth, created: time, permissions });
const node = object({ ...{ id: uuid, verbose_name: text, status: text }, cpu_count: integer, permissions });
const usage = object({ id: uuid, cpu_count: integer, memory_count: integer, domains_count: integer });
const pool = object({
  id: uuid,
  verbose_name: text,
  status: text,
  size: integer,
  free_space: integer,
  shared: truth,
  shared_storage: orNull(named),
  nodes_connected: listed(object({ id: uuid, verbose_name: text, connection_status: text })),
  tags: listed(borneTag),
  permissions,
});
const domain = object({
  id: uuid,
  verbose_name: text,
  user_power_state: integer,
  node: named,
  parent: orNull(named),
  template: truth,
  memory_count: integer,
  vdisks: listed(object({ id: uuid, verbose_name: text, size: integer })),
  tags: listed(borneTag),
  locked_by: orNull(uuid),
  permissions,
});
const vdisk = object({
  id: uuid,
  verbose_name: text,
  size: integer,
  datapool: orNull(named),
  domain: named,
  hints: integer,
  shareable: truth,
});
const wholeVdisk = object({ id: uuid, size: integer, used: integer, readonly: truth, permissions });
const task = object({
  id: uuid,
  status: text,
  progress: integer,
  executed: text,
  error_message: text,
  parent: orNull(uuid),
  entities: byKey(text),
  nodes_list: listed(uuid),
  user: object({ id: integer, username: text }),
  permissions,
});
const accepted = object({ entity: uuid, _task: task });
const file = object({
  id: uuid,
  filename: text,
  size: integer,
  status: text,
  type: text,
  compressed: truth,
  datapool: named,
  domain: orNull(named),
  created: time,
  information: orNull(byKey((value: unknown) => value)),
  permissions,
});
const tag = object({
  id: uuid,
  verbose_name: text,
  entities: listed(object({ entity_uuid: uuid, entity_class: text })),
  permissions,
});
const event = object({ id: uuid, type: text, message: text, user: text, created: time, permissions });
const whole = object({ id: uuid, verbose_name: text, nodes_count: integer, built_in: truth, permissions });

const POLL_MS = 20;

export class StrictClient {
  readonly #url: string;
  #token = '';

  constructor(url: string) {
    this.#url = url;
  }

  async login(username: string, password: string): Promise<void> {
    const issued = object({ token: text, expires_on: time });
    this.#token = (await this.#call(issued, 'POST', '/auth/', { username, password })).token;
  }

  /** @returns what it made. */
  async mainJob({ domain: domainId, borrower, vdisk: diskId, datapool }: Job) {
    await this.#look();
    await this.#get(pool, `/api/data-pools/${datapool}/`);
    const owner = await this.#get(domain, `/api/domains/${domainId}/`);
    const made = await this.#done('/api/domains/backup/', { domain: domainId, datapool });
    await this.#get(file, `/api/library/${made}/`);
    await this.#done(`/api/domains/${borrower}/attach-vdisk/`, { vdisk: diskId });
    const lent = await this.#get(page(vdisk), `/api/vdisks/?another_domain=${borrower}`);
    await this.#get(wholeVdisk, `/api/vdisks/${diskId}/`);
    await this.#done(`/api/domains/${borrower}/detach-vdisk/`, { vdisk: diskId });
    const restored = await this.#done('/api/domains/automated-restore/', {
      file: made,
      node: owner.node.id,
      datapool,
    });
    const label = await this.#call(tag, 'POST', '/api/tags/', { verbose_name: `of ${restored}` });
    const entities = [{ entity_uuid: restored, entity_class: 'domain' }];
    await this.#call(tag, 'POST', `/api/tags/${label.id}/add-entities/`, { entities });
    const renamed = { verbose_name: `web ${restored}`, tags: [label.id] };
    const { tags } = await this.#call(domain, 'PUT', `/api/domains/${restored}/?async=0`, renamed);
    const events = await this.#get(page(event), `/api/events/?entity=${made}`);
    for (const { id } of events.results) await this.#get(event, `/api/events/${id}/`);
    return {
      file: made,
      restored,
      lent: lent.results.map(({ id }) => id),
      tags: tags.map(borne => borne.verbose_name),
    };
  }

  async #look(): Promise<void> {
    await this.#get(page(whole), '/api/clusters/');
    await this.#get(page(whole), '/api/resource-pools/');
    const { results } = await this.#get(page(node), '/api/nodes/');
    for (const { id } of results) await this.#get(usage, `/api/nodes/${id}/usage/`);
    const users = await this.#get(page(user), '/api/users/');
    for (const { id } of users.results) await this.#get(user, `/api/users/${id}/`);
  }

  async #done(path: string, body: object): Promise<string> {
    const { entity, _task } = await this.#call(accepted, 'POST', path, body);
    let present: Of<typeof task> = _task;
    while (present.status === 'IN_PROGRESS') {
      await new Promise(resolve => setTimeout(resolve, POLL_MS));
      present = await this.#get(task, `/api/tasks/${present.id}/`);
    }
    if (present.status !== 'SUCCESS') throw new Error(`${path}: ${present.status} ${present.error_message}`);
    return entity;
  }

  #get<T>(kind: Kind<T>, path: string): Promise<T> {
    return this.#call(kind, 'GET', path);
  }

  async #call<T>(kind: Kind<T>, method: string, path: string, body?: object): Promise<T> {
    const query = path.includes('async=') ? '' : `${path.includes('?') ? '&' : '?'}async=1`;
    const response = await fetch(`${this.#url}${path}${query}`, {
      method,
      headers: {
        ...(this.#token === '' ? {} : { authorization: `jwt ${this.#token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer: unknown = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
    return kind(answer, path);
  }
}
