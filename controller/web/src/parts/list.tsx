/** Lists: search, filters, order and paging, all of which stand in the address. */
import {
  Button,
  EmptyState,
  EmptyStateBody,
  FormSelect,
  FormSelectOption,
  Pagination,
  SearchInput,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core';
import { Th } from '@patternfly/react-table';
import { type ReactNode, useCallback, useEffect } from 'react';
import { useSearchParams } from 'react-router';
import { setting, storeSetting } from '../settings.ts';
import { useWords } from '../texts/index.tsx';
import { useTyped } from './use-settled.ts';

const PER_PAGE = [20, 50, 100, 200];
const DEFAULT_PER_PAGE = 50;
const TYPING_MS = 300;
/** With more pages than these one also goes to any of them, not only to the next. */
const FEW_PAGES = 2;

export interface ListState {
  page: number;
  perPage: number;
  name: string;
  /** Value of a filter; empty: none. */
  filter: (name: string) => string;
  /** By what it is ordered, as the API takes it. */
  order: string;
  set: (changes: Record<string, string>) => void;
  isFiltered: boolean;
  clear: () => void;
  /** As the API takes it. */
  query: { limit: number; offset: number; name?: string; ordering?: string };
}

/**
 * @param filters names of the list's own ones
 * @param orders what it may be ordered by, the first one unless another is chosen; with a leading "-" from the last to the first
 */
export function useList(filters: readonly string[] = [], orders: readonly string[] = []): ListState {
  const [params, setParams] = useSearchParams();
  const kept = Number(setting('perPage'));
  const perPage = PER_PAGE.includes(kept) ? kept : DEFAULT_PER_PAGE;
  const page = Math.max(1, Math.trunc(Number(params.get('page') ?? '1')) || 1);
  const name = params.get('name') ?? '';
  const asked = params.get('order') ?? '';
  const order = orders.some(one => fieldOf(one) === fieldOf(asked)) ? asked : (orders[0] ?? '');
  const set = (changes: Record<string, string>) => {
    // as the address is now, and not when this was drawn: what was chosen a moment ago, while somebody typed, stays chosen
    const next = new URLSearchParams(window.location.search);
    // what is looked for is on another page then
    for (const [key, value] of Object.entries({ page: '', ...changes }))
      if (value === '') next.delete(key);
      else next.set(key, value);
    setParams(next, { replace: true });
  };
  return {
    page,
    perPage,
    name,
    filter: key => params.get(key) ?? '',
    order,
    set,
    isFiltered: name !== '' || filters.some(key => params.has(key)),
    clear: () => set(Object.fromEntries(['name', ...filters].map(key => [key, '']))),
    query: {
      limit: perPage,
      offset: (page - 1) * perPage,
      ...(name === '' ? {} : { name }),
      ...(order === '' ? {} : { ordering: order }),
    },
  };
}

/** Without its direction. */
const fieldOf = (order: string): string => order.replace(/^-/, '');

interface OrderedThProps {
  list: ListState;
  /** As the API takes it, without a direction. */
  by: string;
  children: ReactNode;
}

/** The head of a column by which the list is ordered when it is clicked, and the other way round when it is clicked again. */
export function OrderedTh({ list, by, children }: OrderedThProps) {
  const isBy = fieldOf(list.order) === by;
  const direction = list.order.startsWith('-') ? 'desc' : 'asc';
  return (
    <Th
      modifier="wrap"
      sort={{
        columnIndex: 0,
        sortBy: isBy ? { index: 0, direction } : {},
        onSort: (_event, _column, wanted) => list.set({ order: wanted === 'desc' ? `-${by}` : by }),
      }}
    >
      {children}
    </Th>
  );
}

interface ListBarProps {
  list: ListState;
  count: number | undefined;
  /** Filters and actions. */
  children?: ReactNode;
  hasSearch?: boolean;
}

export function ListBar({ list, count, children, hasSearch = true }: ListBarProps) {
  const isBeyond = count !== undefined && count > 0 && list.query.offset >= count;
  useEffect(() => {
    // the last of a page was removed
    if (isBeyond) list.set({});
  });
  return (
    <Toolbar inset={{ default: 'insetNone' }}>
      <ToolbarContent>
        {hasSearch && (
          <ToolbarItem>
            <Search list={list} />
          </ToolbarItem>
        )}
        {children}
        <ToolbarItem variant="pagination">
          <Pages list={list} count={count ?? 0} />
        </ToolbarItem>
      </ToolbarContent>
    </Toolbar>
  );
}

function Search({ list }: { list: ListState }) {
  const { texts } = useWords();
  const set = useCallback((name: string) => list.set({ name }), [list]);
  const [typed, setTyped] = useTyped(list.name, set, TYPING_MS);
  return (
    <SearchInput
      aria-label={texts.list.search}
      placeholder={texts.list.search}
      resetButtonLabel={texts.list.clear}
      value={typed}
      onChange={(_event, value) => setTyped(value)}
      onClear={() => setTyped('')}
    />
  );
}

interface FilterProps {
  list: ListState;
  name: string;
  label: string;
  /** Words by values. */
  options: Readonly<Record<string, string>>;
}

export function Filter({ list, name, label, options }: FilterProps) {
  const { texts } = useWords();
  return (
    <ToolbarItem>
      <FormSelect
        aria-label={label}
        value={list.filter(name)}
        onChange={(_event, value) => list.set({ [name]: value })}
      >
        <FormSelectOption value="" label={`${label}: ${texts.list.all}`} />
        {Object.entries(options).map(([value, text]) => (
          <FormSelectOption key={value} value={value} label={text} />
        ))}
      </FormSelect>
    </ToolbarItem>
  );
}

function Pages({ list, count }: { list: ListState; count: number }) {
  const { texts } = useWords();
  const words = texts.list;
  return (
    <Pagination
      isCompact={count <= FEW_PAGES * list.perPage}
      itemCount={count}
      page={list.page}
      perPage={list.perPage}
      perPageOptions={PER_PAGE.map(value => ({ title: String(value), value }))}
      titles={{
        paginationAriaLabel: words.page,
        ofWord: words.of,
        items: '',
        perPageSuffix: words.perPage,
        itemsPerPage: words.perPage,
        // the toggle is named by what it shows
        optionsToggleAriaLabel: '',
        toFirstPageAriaLabel: words.first,
        toPreviousPageAriaLabel: words.previous,
        toNextPageAriaLabel: words.next,
        toLastPageAriaLabel: words.last,
        currPageAriaLabel: words.currentPage,
      }}
      onSetPage={(_event, page) => list.set({ page: page === 1 ? '' : String(page) })}
      onPerPageSelect={(_event, perPage) => {
        storeSetting('perPage', String(perPage));
        // asks anew, from the first page
        list.set({});
      }}
    />
  );
}

interface EmptyProps {
  list?: ListState;
  title: string;
  text?: string;
  children?: ReactNode;
}

/** That nothing is there, or nothing that is looked for, and what to do then. */
export function Empty({ list, title, text, children }: EmptyProps) {
  const { texts } = useWords();
  if (list?.isFiltered)
    return (
      <EmptyState variant="sm" titleText={texts.list.empty} headingLevel="h2">
        <EmptyStateBody>
          <Button variant="link" isInline onClick={list.clear}>
            {texts.list.clearFilters}
          </Button>
        </EmptyStateBody>
      </EmptyState>
    );
  return (
    <EmptyState variant="sm" titleText={title} headingLevel="h2">
      {(text || children) && (
        <EmptyStateBody>
          {text && <p>{text}</p>}
          {children}
        </EmptyStateBody>
      )}
    </EmptyState>
  );
}
