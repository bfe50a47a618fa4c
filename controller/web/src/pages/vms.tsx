import { Button, Checkbox, Label, ToolbarItem } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useNavigate } from 'react-router';
import {
  AT_ONCE,
  api,
  begun,
  type Domain,
  keyFor,
  list,
  type NodeRecord,
  type ProtectionState,
  type Tag,
} from '../api/client.ts';
import { ActionMenu } from '../parts/actions.tsx';
import { AskText, Confirm } from '../parts/confirm.tsx';
import { PowerLabel, ProtectionLabel } from '../parts/labels.tsx';
import { Empty, Filter, ListBar, type ListState, OrderedTh, useList } from '../parts/list.tsx';
import { type Machines, useNames } from '../parts/names.ts';
import { ViewPage } from '../parts/page.tsx';
import { domainReason, rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { TagDialog } from '../parts/tag-dialog.tsx';
import { useToasts } from '../parts/toasts.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

const MiB = 1024 * 1024;
/** As the API takes them. */
const MOST_AT_ONCE = 200;

const FILTERS = ['protection', 'power', 'node', 'tag'] as const;
const ORDERS = ['verbose_name', 'user_power_state', 'memory_count'];

export default function VmsPage() {
  const { texts } = useWords();
  const words = texts.vms;
  const state = useList(FILTERS, ORDERS);
  const navigate = useNavigate();
  const [chosen, setChosen] = useState<Machines>(new Map());
  const [protection, power, node, tag] = FILTERS.map(state.filter);
  const filters = {
    ...state.query,
    ...(protection ? { protection: protection as ProtectionState } : {}),
    ...(power ? { user_power_state: Number(power) } : {}),
    ...(node ? { node } : {}),
    ...(tag ? { tag } : {}),
  };
  const query = useQuery({
    queryKey: ['domains', filters],
    queryFn: () => list<Domain>(api.GET('/api/domains/', { params: { query: filters } })),
    placeholderData: keepPreviousData,
  });
  const nodes = useQuery({
    queryKey: ['nodes', 'names'],
    queryFn: () => list<NodeRecord>(api.GET('/api/nodes/', { params: { query: { limit: 1000 } } })),
  });
  const nodeNames = Object.fromEntries(
    (nodes.data?.results ?? []).map(({ id, verbose_name }) => [id, verbose_name]),
  );
  const tags = useQuery({
    queryKey: ['tags', 'all'],
    queryFn: () => list<Tag>(api.GET('/api/tags/', { params: { query: { limit: 1000 } } })),
  });
  const tagNames = Object.fromEntries(
    (tags.data?.results ?? []).map(({ id, verbose_name }) => [id, verbose_name]),
  );
  const namesOf = useNames();
  const [isTagging, setTagging] = useState(false);
  const ids = [...chosen.keys()];
  return (
    <ViewPage title={words.title}>
      <ListBar list={state} count={query.data?.count}>
        <Filter list={state} name="protection" label={words.protection} options={texts.protection} />
        <Filter list={state} name="power" label={words.power} options={texts.power} />
        <Filter list={state} name="node" label={texts.common.node} options={nodeNames} />
        <Filter list={state} name="tag" label={texts.tags.tag} options={tagNames} />
        <ToolbarItem>
          <Button
            isDisabled={ids.length === 0 || ids.length > MOST_AT_ONCE}
            onClick={() => void navigate('/backup', { state: { ids } })}
          >
            {words.backupSelected}
          </Button>
        </ToolbarItem>
        <ToolbarItem>
          <ManyMenu machines={chosen} tag={() => setTagging(true)} />
        </ToolbarItem>
      </ListBar>
      {isTagging && <TagDialog machines={chosen} close={() => setTagging(false)} />}
      <p className="vk-small" role="status">
        {ids.length > MOST_AT_ONCE ? words.tooMany : ids.length > 0 ? texts.list.selected(ids.length) : ''}
        {ids.length > 0 && `: ${namesOf(chosen)}`}
      </p>
      {ids.length > 0 && (
        <Button variant="link" isInline className="vk-block" onClick={() => setChosen(new Map())}>
          {words.chooseNone}
        </Button>
      )}
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} text={texts.overview.noVmsText} />
          ) : (
            <VmTable list={state} domains={results} chosen={chosen} choose={setChosen} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

interface VmTableProps {
  list: ListState;
  domains: readonly Domain[];
  chosen: Machines;
  choose: (chosen: Machines) => void;
}

function VmTable({ list, domains, chosen, choose }: VmTableProps) {
  const { texts, format } = useWords();
  const words = texts.vms;
  const isWhole = domains.every(({ id }) => chosen.has(id));
  const turn = (some: readonly Domain[], on: boolean) => {
    const next = new Map(chosen);
    for (const { id, verbose_name } of some)
      if (on) next.set(id, verbose_name);
      else next.delete(id);
    choose(next);
  };
  return (
    <Table aria-label={words.title} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th>
            <Checkbox
              id="select-page"
              aria-label={texts.list.selectPage}
              isChecked={isWhole}
              onChange={(_event, on) => turn(domains, on)}
            />
          </Th>
          <OrderedTh list={list} by="verbose_name">
            {texts.common.name}
          </OrderedTh>
          <OrderedTh list={list} by="user_power_state">
            {words.power}
          </OrderedTh>
          <Th modifier="wrap">{words.protection}</Th>
          <Th modifier="wrap">{words.lastGood}</Th>
          <Th modifier="wrap">{texts.common.node}</Th>
          <OrderedTh list={list} by="memory_count">
            {words.memory}
          </OrderedTh>
          <Th modifier="wrap">{words.disks}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {domains.map(domain => (
          <Tr key={domain.id}>
            <Td>
              <Checkbox
                id={`select-${domain.id}`}
                aria-label={texts.list.selectRow(domain.verbose_name)}
                isChecked={chosen.has(domain.id)}
                onChange={(_event, on) => turn([domain], on)}
              />
            </Td>
            <Td dataLabel={texts.common.name} className="vk-name">
              <Link to={`/vms/${domain.id}`}>{domain.verbose_name}</Link>{' '}
              {domain.tags.map(one => (
                <Label key={one.id} isCompact>
                  {one.verbose_name}
                </Label>
              ))}
            </Td>
            <Td dataLabel={words.power}>
              <PowerLabel state={domain.user_power_state} />
            </Td>
            <Td dataLabel={words.protection}>
              <ProtectionLabel state={domain.protection.state} />
            </Td>
            <Td dataLabel={words.lastGood}>{format.age(domain.protection.last_good)}</Td>
            <Td dataLabel={texts.common.node}>{domain.node.verbose_name}</Td>
            <Td dataLabel={words.memory}>{format.size(domain.memory_count * MiB)}</Td>
            <Td dataLabel={words.disks}>{format.number(domain.vdisks_count)}</Td>
            <Td isActionCell>
              <VmMenu domain={domain} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

type Many = 'start' | 'shutdown' | 'reboot' | 'snapshot';

/** What is done with all that are chosen, as one task with a part for each. */
function ManyMenu({ machines, tag }: { machines: Machines; tag: () => void }) {
  const ids = [...machines.keys()];
  const namesOf = useNames();
  const { texts } = useWords();
  const words = texts.vms;
  const asked = useAsked();
  const { attempt, started } = useToasts();
  const [asks, setAsks] = useState<Many | undefined>();
  const none = ids.length === 0 ? words.chooseFirst : ids.length > MOST_AT_ONCE ? words.tooMany : undefined;
  const run = async (action: Many, verbose_name?: string) => {
    const options = verbose_name === undefined ? {} : { options: { verbose_name } };
    const key = keyFor('/api/domains/multi-manager/', JSON.stringify([action, ids, options]));
    const body = { action, entity_ids: ids, ...options, idempotency_key: key };
    started(await begun(api.POST('/api/domains/multi-manager/', { params: { query: AT_ONCE }, body })));
  };
  const power = (action: Many, isDanger = false) => ({
    key: action,
    label: texts.vm[action as 'start' | 'shutdown' | 'reboot'],
    reason: none ?? rightReason('domain.power', asked),
    act: () => (isDanger ? setAsks(action) : attempt(() => run(action))),
    isDanger,
  });
  return (
    <>
      <ActionMenu
        of={words.selected(ids.length)}
        actions={[
          { key: 'tag', label: words.tag, reason: none ?? rightReason('tag.manage', asked), act: tag },
          power('start'),
          power('shutdown', true),
          power('reboot', true),
          {
            key: 'snapshot',
            label: texts.vm.makeSnapshot,
            reason: none ?? rightReason('snapshot.manage', asked),
            act: () => setAsks('snapshot'),
          },
        ]}
      />
      {(asks === 'shutdown' || asks === 'reboot') && (
        <Confirm
          title={words.manyTitle(texts.vm[asks], ids.length)}
          text={`${namesOf(machines)}. ${words.manyText}`}
          submit={texts.vm[asks]}
          act={() => run(asks)}
          close={() => setAsks(undefined)}
        />
      )}
      {asks === 'snapshot' && (
        <AskText
          title={words.manyTitle(texts.vm.makeSnapshot, ids.length)}
          label={texts.vm.snapshotName}
          help={namesOf(machines)}
          before=""
          act={name => run('snapshot', name)}
          close={() => setAsks(undefined)}
        />
      )}
    </>
  );
}

function VmMenu({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const asked = useAsked();
  return (
    <ActionMenu
      of={domain.verbose_name}
      actions={[
        {
          key: 'backup',
          label: texts.vm.backup,
          reason: domainReason('backup', domain, asked),
          to: `/backup?vm=${domain.id}`,
        },
        { key: 'backups', label: texts.vm.backups, to: `/vms/${domain.id}/backups` },
        { key: 'snapshots', label: texts.vm.snapshots, to: `/vms/${domain.id}/snapshots` },
      ]}
    />
  );
}
