import { Alert, AlertActionCloseButton, Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, list, type NotificationTarget, type Schemas, SELDOM } from '../../api/client.ts';
import { ActionMenu } from '../../parts/actions.tsx';
import { Confirm } from '../../parts/confirm.tsx';
import { Empty, ListBar, useList } from '../../parts/list.tsx';
import { Shown } from '../../parts/shown.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useWords } from '../../texts/index.tsx';
import { EditTarget } from './target-form.tsx';

type Test = Schemas['NotificationTest'] & { name: string };

export function Targets() {
  const { texts } = useWords();
  const words = texts.notifications;
  const state = useList();
  const [tested, setTested] = useState<Test | undefined>();
  const query = useQuery({
    queryKey: ['targets', state.query],
    queryFn: () =>
      list<NotificationTarget>(api.GET('/api/notification-targets/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
    ...SELDOM,
  });
  return (
    <>
      <ListBar list={state} count={query.data?.count} />
      <div aria-live="polite">
        {tested && (
          <Alert
            isInline
            variant={tested.delivered ? 'success' : 'danger'}
            title={tested.delivered ? words.arrived(tested.name) : words.failed(tested.name)}
            actionClose={
              <AlertActionCloseButton
                title={texts.common.close}
                aria-label={texts.common.close}
                onClose={() => setTested(undefined)}
              />
            }
          >
            {tested.reason}
          </Alert>
        )}
      </div>
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} text={words.emptyText} />
          ) : (
            <TargetTable targets={results} tested={setTested} />
          )
        }
      </Shown>
    </>
  );
}

interface TableProps {
  targets: readonly NotificationTarget[];
  tested: (test: Test) => void;
}

function TargetTable({ targets, tested }: TableProps) {
  const { texts } = useWords();
  const words = texts.notifications;
  return (
    <Table aria-label={words.targets} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{words.kind}</Th>
          <Th modifier="wrap">{words.where}</Th>
          <Th modifier="wrap">{words.events}</Th>
          <Th modifier="wrap">{words.waiting}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {targets.map(target => (
          <Tr key={target.id}>
            <Td dataLabel={texts.common.name} className="vk-name">
              {target.verbose_name} {!target.enabled && <Label isCompact>{words.disabled}</Label>}
            </Td>
            <Td dataLabel={words.kind}>{words.kinds[target.kind]}</Td>
            <Td dataLabel={words.where} className="vk-name">
              {target.mail ? target.mail.to.join(', ') : target.webhook?.url}
            </Td>
            <Td dataLabel={words.events}>
              {target.events.map(event => words.eventNames[event]).join(', ') || texts.none}
            </Td>
            <Td dataLabel={words.waiting}>{words.counts(target.pending, target.dead)}</Td>
            <Td isActionCell>
              <TargetMenu target={target} tested={tested} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function TargetMenu({ target, tested }: { target: NotificationTarget; tested: (test: Test) => void }) {
  const { texts } = useWords();
  const words = texts.notifications;
  const client = useQueryClient();
  const { attempt } = useToasts();
  const [asks, setAsks] = useState<'edit' | 'remove' | undefined>();
  const close = () => setAsks(undefined);
  const { id, verbose_name: name, enabled } = target;
  const params = { path: { id } };
  const again = () => client.invalidateQueries({ queryKey: ['targets'] });
  const test = async () =>
    tested({
      ...(await answer(api.POST('/api/notification-targets/{id}/test/', { params, body: {} }))),
      name,
    });
  const turn = async () => {
    await answer(api.PUT('/api/notification-targets/{id}/', { params, body: { enabled: !enabled } }));
    await again();
  };
  const remove = async () => {
    await answer(api.POST('/api/notification-targets/{id}/remove/', { params, body: {} }));
    await again();
  };
  return (
    <>
      <ActionMenu
        of={name}
        actions={[
          { key: 'test', label: words.test, act: () => attempt(test) },
          { key: 'edit', label: words.change, act: () => setAsks('edit') },
          { key: 'turn', label: enabled ? words.disable : words.enable, act: () => attempt(turn) },
          { key: 'remove', label: words.remove, act: () => setAsks('remove'), isDanger: true },
        ]}
      />
      {asks === 'edit' && <EditTarget target={target} kind={target.kind} close={close} />}
      {asks === 'remove' && (
        <Confirm
          title={words.removeTitle(name)}
          text={words.removeText}
          submit={words.remove}
          name={name}
          act={remove}
          close={close}
        />
      )}
    </>
  );
}
