var NAVTREEINDEX0 =
{
"index.html":[],
"pages.html":[]
};
