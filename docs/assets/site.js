// What Material leaves unnamed for screen readers, and wide tables out of reach of the keyboard.
addEventListener("load", () => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, table.dataframe")) {
    wide.tabIndex = 0;
  }
});
